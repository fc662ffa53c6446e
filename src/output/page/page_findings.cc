// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "format/memory_words.h"
#include "output/answers.h"
#include "output/page/page_tables.h"
#include "output/results/json_parts.h"
#include "query/advice/advice.h"
#include "query/oom/out_of_memory.h"
#include "query/results.h"

namespace vramscope::output {
namespace {

using util::JsonWriter;

// A row an iteration and device, as `vramscope iterations` has them.
void WriteIterationTable(const tables::Recording& recording,
                         const query::Iterations& iterations,
                         const std::function<int(tables::DeviceId)>& device_of,
                         JsonWriter& json) {
  const int64_t start_ns = recording.tables().session.begin_ns;
  const std::vector<query::Iteration>& rows = iterations.iterations;
  const auto column = [&](const char* key, const auto& value) {
    WriteColumn(json, key, rows, value);
  };
  json.Key("iteration_table");
  json.BeginObject();
  json.Field("source", iterations.source);
  column("device", [&](const auto& row) { return device_of(row.device); });
  column("process", [](const auto& row) { return row.process.value; });
  column("number", [](const auto& row) { return row.number; });
  column("begin", [&](const auto& row) { return row.begin_ns - start_ns; });
  column("end", [&](const auto& row) { return row.end_ns - start_ns; });
  column("peak", [](const auto& row) { return row.peak_bytes; });
  column("peak_at", [&](const auto& row) { return row.peak_ns - start_ns; });
  column("end_allocated", [](const auto& row) { return row.end_allocated; });
  column("allocated", [](const auto& row) { return row.peak_allocated; });
  column("reserved", [](const auto& row) { return row.peak_reserved; });
  // By category, of those that have any: the highest within the iteration.
  json.Key("categories");
  json.BeginObject();
  for (const format::Category category : format::kAllCategories) {
    const auto of = [&](const query::Iteration& row) {
      return query::BytesOf(row.category_peak, category);
    };
    bool any = false;
    for (const query::Iteration& row : rows)
      any = any || of(row) > 0;
    if (any)
      column(format::CategoryName(category), of);
  }
  json.EndObject();
  json.EndObject();
}

// What `vramscope leaks` lists.
void WriteLeaks(const tables::Recording& recording,
                const std::function<int(tables::DeviceId)>& device_of,
                PageStacks& stacks,
                JsonWriter& json) {
  auto leaks = query::MakeLeaks(recording, {});
  const auto write = [&](const char* key, const std::vector<query::Growth>& rows) {
    WriteList(json, key, rows, [&](const query::Growth& growth, JsonWriter& out) {
      out.Field("device", device_of(growth.device));
      out.Field("place", growth.place);
      out.Field("module", growth.module);
      out.Field("category", growth.category);
      out.Field("per_iteration", growth.bytes_per_iteration);
      out.Field("first", growth.first_bytes);
      out.Field("bytes", growth.last_bytes);
      out.Field("count", growth.count);
      out.Field("steady", growth.steady);
      out.Field("stack", stacks.Of(growth.stack));
    });
  };
  json.Key("leaks");
  json.BeginObject();
  json.Field("verdict", tables::IsSampled(recording) ? "Sampled: allocations are unknown"
                        : leaks.ok()                 ? VerdictOf(*leaks).text
                                                     : leaks.status().message());
  json.Field("unused", leaks.ok() ? UnusedModelsText(*leaks) : "");
  json.Field("expected", leaks.ok() ? NotListedText(*leaks) : "");
  write("growing", leaks.ok() ? leaks->growing : std::vector<query::Growth>{});
  write("never_freed", leaks.ok() ? leaks->never_freed : std::vector<query::Growth>{});
  json.EndObject();
}

void WriteOutOfMemory(const tables::Recording& recording,
                      const std::function<int(tables::DeviceId)>& device_of,
                      PageStacks& stacks,
                      JsonWriter& json) {
  const tables::Tables& tables = recording.tables();
  WriteList(json, "out_of_memory", tables.out_of_memory,
            [&](const tables::OutOfMemoryRow& row, JsonWriter& out) {
              const size_t account = row.account.value;
              out.Field("device", account < tables.accounts.size()
                                      ? device_of(tables.accounts[account].device)
                                      : -1);
              out.Field("t", row.time_ns - tables.session.begin_ns);
              out.Field("bytes", row.requested_bytes);
              out.Field("api", recording.string(row.api));
              out.Field("stack", stacks.Of(row.stack.value != 0 ? row.stack : row.native_stack));
            });
}

// Why each device's last failed request failed, in the words of `report --oom`.
void WriteExplained(const tables::Recording& recording,
                    const std::function<int(tables::DeviceId)>& device_of,
                    JsonWriter& json) {
  std::map<int, query::OutOfMemory> last;
  const auto refusals = query::FindRefusals(recording);
  for (const query::Refusal& refusal : refusals.ok() ? *refusals : std::vector<query::Refusal>()) {
    if (refusal.served)
      continue;
    if (auto what = query::ExplainRefusal(recording, refusal); what.ok())
      last.insert_or_assign(device_of(what->device), std::move(*what));
  }
  json.Key("explained");
  json.BeginArray();
  for (const auto& [device, what] : last) {
    json.BeginObject();
    json.Field("device", device);
    json.Field("t", what.refusal.time_ns - recording.tables().session.begin_ns);
    json.Field("head", RefusalHead(what, recording));
    json.Field("cause", what.cause);
    json.Field("try", TryText(what));
    WriteList(json, "advice", what.advice, [](const query::Advice& advice, JsonWriter& out) {
      out.Field("bytes", advice.saves_bytes);
      out.Field("text", advice.text);
      out.Field("how", advice.how);
    });
    json.EndObject();
  }
  json.EndArray();
}

// What `report --phases --json` prints, its last lines, and where a click on each phase or graph
// leads.
void WritePhases(const FindingsOf& of, JsonWriter& json) {
  json.Key("phases");
  if (!of.phases) {
    json.Null();
    return;
  }
  const int64_t start_ns = of.recording.tables().session.begin_ns;
  json.BeginObject();
  json.Key("answer");
  WritePhasesJson(*of.phases, of.recording, json);
  TextList(json, "notes", PhaseNotes(*of.phases, of.recording));
  json.Key("windows");
  json.BeginArray();
  const auto since = [&](int64_t time_ns) {
    return std::clamp(time_ns, start_ns, of.end_ns) - start_ns;
  };
  for (const auto* const entries : {&of.phases->phases, &of.phases->graphs}) {
    for (const query::EnginePhase& entry : *entries)
      WriteTuple(json, since(entry.begin_ns), since(entry.end_ns), since(entry.peak_ns));
  }
  json.EndArray();
  json.EndObject();
}

// What `report --advice --json` prints, if it advises anything.
void WriteSavings(const FindingsOf& of, JsonWriter& json) {
  util::Result<query::Savings> savings = query::Savings{};
  if (of.advise)
    savings = query::FindSavings(of.recording, std::nullopt);
  json.Field("savings_left_out", !of.advise);
  json.Key("savings");
  if (savings.ok() && !savings->savings.empty())
    WriteSavingsJson(*savings, of.recording, json);
  else
    json.Null();
}

}  // namespace

void WriteFindings(const FindingsOf& of,
                   const std::function<int(tables::DeviceId)>& device_of,
                   PageStacks& stacks,
                   JsonWriter& json) {
  WriteIterationTable(of.recording, of.iterations, device_of, json);
  WritePhases(of, json);
  WriteSavings(of, json);
  WriteLeaks(of.recording, device_of, stacks, json);
  WriteOutOfMemory(of.recording, device_of, stacks, json);
  WriteExplained(of.recording, device_of, json);
}

}  // namespace vramscope::output
