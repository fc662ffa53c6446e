// SPDX-License-Identifier: Apache-2.0
#include "import/builder.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "tables/imported.h"
#include "tables/table_checks.h"
#include "util/size_text.h"
#include "util/text.h"

namespace vramscope::imports {
namespace {

using tables::SiteRow;

// A longer text is not a name.
constexpr size_t kMaxTextBytes = size_t{64} << 10;
// The cost of a row's entry in a hash table.
constexpr uint64_t kInternBytes = 16;

// Sums do not distinguish sites.
SiteRow KeyOf(SiteRow row) {
  row.allocated_bytes = row.allocated_count = 0;
  return row;
}

uint64_t HashOf(const SiteRow& row) {
  uint64_t hash = 0;
  tables::TableOf<SiteRow>::VisitColumns([key = KeyOf(row), &hash](const auto& column) {
    hash = util::Mix64(hash + 0x9e3779b97f4a7c15 + tables::ToWord(key.*column.field));
  });
  return hash;
}

}  // namespace

tables::StringId Builder::Text(std::string_view text) {
  if (text.size() > kMaxTextBytes)
    text = text.substr(0, kMaxTextBytes);
  return names_.AddText(util::ValidUtf8(text));
}

template <class Row, class Key>
uint32_t Builder::Number(std::vector<Row>* rows,
                         std::map<Key, uint32_t>* known,
                         Key key,
                         const Row& row) {
  const auto [found, added] = known->try_emplace(key, static_cast<uint32_t>(rows->size()));
  if (added) {
    rows->push_back(row);
    (void)budget_.Charge("rows", 1, sizeof(Row) + 64);
  }
  return found->second;
}

tables::DeviceId Builder::Device(tables::DeviceKind kind, int32_t index) {
  tables::DeviceRow row;
  row.host = tables::HostId{1};
  row.kind = kind;
  row.index = index;
  return tables::DeviceId{Number(&out_.devices, &devices_, std::pair(row.kind, index), row)};
}

tables::ProcessId Builder::Process(uint32_t pid) {
  tables::ProcessRow row;
  row.host = tables::HostId{1};
  row.pid = pid;
  row.rank = -1;
  row.begin_ns = row.end_ns = row.exit_ns = kUnset;
  row.wait_status = -1;
  return tables::ProcessId{Number(&out_.processes, &processes_, pid, row)};
}

tables::ThreadId Builder::Thread(tables::ProcessId process, uint32_t tid) {
  tables::ThreadRow row;
  row.process = process;
  row.tid = tid;
  return tables::ThreadId{Number(&out_.threads, &threads_, std::pair(process.value, tid), row)};
}

tables::AccountId Builder::Account(tables::ProcessId process, tables::DeviceId device) {
  tables::AccountRow row;
  row.process = process;
  row.device = device;
  row.begin_ns = process.value == 0 ? INT64_MIN : INT64_MAX;
  row.end_ns = tables::kNever;
  return tables::AccountId{
      Number(&out_.accounts, &accounts_, std::pair(process.value, device.value), row)};
}

tables::SiteId Builder::Site(const SiteRow& row) {
  // Over budget: keeps the existing rows and adds no more.
  if (budget_.IsOver())
    return {};
  const auto next = static_cast<uint32_t>(out_.sites.size());
  const uint32_t id = sites_.Intern(
      HashOf(row), next, [&](uint32_t known) { return KeyOf(out_.sites[known]) == KeyOf(row); },
      [&](uint32_t known) { return HashOf(out_.sites[known]); });
  if (id == next) {
    out_.sites.push_back(row);
    (void)budget_.Charge("sites", 1, sizeof row + kInternBytes);
  }
  return tables::SiteId{id};
}

tables::CounterId Builder::Counter(tables::SiteId site, tables::SegmentId segment) {
  tables::CounterRow row;
  row.site = site;
  row.segment = segment;
  const uint32_t id = Number(&out_.counters, &counters_, std::pair(site.value, segment.value), row);
  counter_bytes_.resize(out_.counters.size());
  return tables::CounterId{id};
}

tables::SegmentId Builder::Segment(const tables::SegmentRow& row) {
  if (!budget_.Charge("segments", 1, sizeof row))
    return {};
  out_.segments.push_back(row);
  return tables::SegmentId{static_cast<uint32_t>(out_.segments.size() - 1)};
}

SiteRow Builder::SiteOf(tables::AccountId account, format::Part part) {
  SiteRow row;
  row.account = account;
  row.part = part;
  row.category = format::PartCategory(part);
  return row;
}

int64_t Builder::Tick(int64_t at_ns) {
  at_ns = std::clamp(at_ns, -tables::kMaxTimeNs / 2, tables::kMaxTimeNs / 2);
  last_tick_ns_ = last_tick_ns_ == INT64_MIN ? at_ns : std::max(at_ns, last_tick_ns_ + 1);
  Covers(last_tick_ns_, last_tick_ns_);
  return last_tick_ns_;
}

void Builder::Covers(int64_t from_ns, int64_t to_ns) {
  first_ns_ = std::min(first_ns_, from_ns);
  last_ns_ = std::max(last_ns_, to_ns);
}

void Builder::SeeSite(tables::SiteId site, int64_t time_ns) {
  tables::AccountRow& account = out_.accounts[out_.sites[site.value].account.value];
  account.begin_ns = std::min(account.begin_ns, time_ns);
  Covers(time_ns, time_ns);
}

void Builder::Add(tables::AllocationRow row) {
  if (budget_.IsOver() || !failed_.ok())
    return;
  SiteRow& site = out_.sites[row.site.value];
  site.allocated_bytes += row.bytes;
  ++site.allocated_count;
  ++allocations_;
  SeeSite(row.site, row.begin_ns);
  if (row.end_ns != tables::kNever)
    Covers(row.begin_ns, row.end_ns);
  failed_ = sink_.Add(row);
}

void Builder::Step(tables::CounterId counter, int64_t time_ns, int64_t bytes) {
  if (bytes == 0 || !budget_.Charge("steps", 1, sizeof(tables::StepRow)))
    return;
  out_.steps.push_back({counter, time_ns, bytes});
  counter_bytes_[counter.value] += bytes;
  SeeSite(out_.counters[counter.value].site, time_ns);
}

void Builder::Set(tables::CounterId counter, int64_t time_ns, uint64_t bytes) {
  Step(counter, time_ns, static_cast<int64_t>(bytes) - counter_bytes_[counter.value]);
}

void Builder::Change(tables::DeviceId device, int64_t time_ns) {
  if (budget_.Charge("changes", 1, sizeof(tables::ChangeRow)))
    out_.changes.push_back({device, time_ns});
}

template <class Row>
void Builder::AddSample(std::vector<Row>* rows,
                        Run<Row>* run,
                        Row row,
                        int64_t time_ns,
                        uint64_t used_bytes,
                        int64_t ledger_bytes) {
  row.time_ns = row.begin_ns = row.end_ns = time_ns;
  row.used_bytes = used_bytes;
  row.ledger_bytes = ledger_bytes;
  Covers(time_ns, time_ns);
  if (run->any && run->last.used_bytes == used_bytes && run->last.ledger_bytes == ledger_bytes &&
      run->last.time_ns <= time_ns) {
    run->skipped += run->held && run->skipped != UINT32_MAX ? 1 : 0;
    run->held = true;
    run->last = row;
    return;
  }
  EndRun(rows, run);
  run->any = run->held = true;
  run->last = row;
  EndRun(rows, run);
}

template <class Row>
void Builder::EndRun(std::vector<Row>* rows, Run<Row>* run) {
  if (!run->held || !budget_.Charge("samples", 1, sizeof(Row)))
    return;
  if constexpr (requires { run->last.repeats; })
    run->last.repeats = run->skipped;
  rows->push_back(run->last);
  run->held = false;
  run->skipped = 0;
}

// Another tool's samples do not measure these rows, so they are not compared.
void Builder::Sample(tables::DeviceId device,
                     int64_t time_ns,
                     uint64_t used_bytes,
                     int64_t ledger_bytes) {
  tables::SampleRow row;
  row.device = device;
  AddSample(&out_.samples, &device_runs_[device.value], row, time_ns, used_bytes, ledger_bytes);
}

void Builder::ProcessSample(tables::AccountId account,
                            int64_t time_ns,
                            uint64_t used_bytes,
                            int64_t ledger_bytes) {
  tables::ProcessSampleRow row;
  row.account = account;
  AddSample(&out_.process_samples, &process_runs_[account.value], row, time_ns, used_bytes,
            ledger_bytes);
}

void Builder::Mark(int64_t time_ns, std::string_view name, tables::ProcessId process) {
  if (!budget_.Charge("marks", 1, sizeof(tables::MarkRow)))
    return;
  out_.marks.push_back({time_ns, Text(name), process});
  Covers(time_ns, time_ns);
}

void Builder::Iteration(tables::ProcessId process,
                        int64_t number,
                        int64_t begin_ns,
                        int64_t end_ns) {
  if (budget_.Charge("iterations", 1, sizeof(tables::IterationRow)))
    out_.iterations.push_back({process, number, begin_ns, end_ns});
}

void Builder::OutOfMemory(const tables::OutOfMemoryRow& row) {
  if (!budget_.Charge("refusals", 1, sizeof row))
    return;
  out_.out_of_memory.push_back(row);
  Covers(row.time_ns, row.time_ns);
}

void Builder::Lose(std::string_view name, uint64_t count, uint64_t bytes) {
  if (count == 0)
    return;
  const tables::StringId id = Text(name);
  for (tables::LossRow& known : out_.losses) {
    if (known.name == id) {
      known.count += count;
      known.bytes += bytes;
      return;
    }
  }
  out_.losses.push_back({id, count, bytes});
}

void Builder::Skip(std::string_view loss, uint64_t line, std::string_view why) {
  if (first_skipped_.empty())
    first_skipped_ = fmt::format("line {}: {}", line, why);
  Lose(loss, 1);
}

// What the input has instead of memory data.
util::Status Builder::Nothing(const std::string& path) const {
  std::string why = why_empty_;
  if (why.empty() && !out_.losses.empty()) {
    const tables::LossRow& loss = out_.losses.front();
    why = fmt::format("{} {}", util::FormatCount(loss.count), names_.text(loss.name));
  }
  if (why.empty())
    why = "no memory is in it";
  if (!first_skipped_.empty())
    why += "; " + first_skipped_;
  return util::Status::Error(fmt::format("{}: nothing was imported: {}", path, why));
}

void Builder::Violate(tables::InvariantKind kind, std::string_view first) {
  for (tables::ViolationRow& known : out_.violations) {
    if (known.invariant == kind) {
      ++known.count;
      return;
    }
  }
  out_.violations.push_back({kind, 1, Text(first)});
}

void Builder::Note(std::string_view key, std::string_view value) {
  out_.notes.push_back({Text(key), Text(value)});
}

void Builder::IsOfOneInstant(std::string_view what) {
  Note("clock", fmt::format("none in the file: it is of one instant, that of the {}", what));
  Note(tables::kInstantNote, what);
  // An instant would have no width in a plot.
  constexpr int64_t kShownNs = 1'000'000'000;
  Covers(last_ns_, last_ns_ + kShownNs);
}

void Builder::CountSeconds(std::string_view what, std::string_view why) {
  Note("clock", why);
  Note(tables::kCountedNote, what);
}

void Builder::Lacks(std::string_view what) {
  lacks_ += (lacks_.empty() ? "" : "; ") + std::string(what);
}

void Builder::SetName(std::string_view name) {
  out_.session.name = util::ValidUtf8(name);
}

void Builder::Sort() {
  const auto by_time = [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; };
  std::stable_sort(out_.steps.begin(), out_.steps.end(), by_time);
  std::stable_sort(out_.samples.begin(), out_.samples.end(), by_time);
  std::stable_sort(out_.marks.begin(), out_.marks.end(), by_time);
  std::stable_sort(out_.process_samples.begin(), out_.process_samples.end(),
                   [](const auto& a, const auto& b) {
                     return std::pair(a.account, a.time_ns) < std::pair(b.account, b.time_ns);
                   });
}

void Builder::SortChanges() {
  for (const tables::StepRow& step : out_.steps) {
    const SiteRow& site = out_.sites[out_.counters[step.counter.value].site.value];
    out_.changes.push_back({out_.accounts[site.account.value].device, step.time_ns});
  }
  const auto place = [](const tables::ChangeRow& row) {
    return std::pair(row.time_ns, row.device);
  };
  const auto is_before = [&](const auto& a, const auto& b) { return place(a) < place(b); };
  const auto is_same = [&](const auto& a, const auto& b) { return place(a) == place(b); };
  std::sort(out_.changes.begin(), out_.changes.end(), is_before);
  out_.changes.erase(std::unique(out_.changes.begin(), out_.changes.end(), is_same),
                     out_.changes.end());
}

void Builder::FillSpans() {
  tables::Session& session = out_.session;
  session.begin_ns = first_ns_;
  session.end_ns = last_ns_;
  for (size_t i = 1; i < out_.processes.size(); ++i) {
    tables::ProcessRow& row = out_.processes[i];
    row.begin_ns = row.begin_ns == kUnset ? first_ns_ : row.begin_ns;
    row.end_ns = row.end_ns == kUnset ? last_ns_ : row.end_ns;
    row.exit_ns = row.exit_ns == kUnset ? row.end_ns : row.exit_ns;
  }
  for (tables::AccountRow& row : out_.accounts)
    row.begin_ns = row.begin_ns == INT64_MAX ? first_ns_ : row.begin_ns;
}

util::Result<tables::Tables> Builder::Finish(const std::string& path) {
  for (auto& [device, run] : device_runs_)
    EndRun(&out_.samples, &run);
  for (auto& [account, run] : process_runs_)
    EndRun(&out_.process_samples, &run);
  if (budget_.IsOver())
    return budget_.Refusal(path);
  if (!failed_.ok())
    return failed_;
  if (allocations_ == 0 && out_.steps.empty() && out_.samples.empty() &&
      out_.process_samples.empty()) {
    return Nothing(path);
  }
  Sort();
  SortChanges();
  FillSpans();
  out_.hosts.push_back({});
  if (!lacks_.empty())
    Note("not in it", lacks_);
  if (!first_skipped_.empty())
    Note("first row that was not read", first_skipped_);
  Lose("frames of stacks that are too deep", names_.cut_frames());
  names_.MoveTo(&out_);
  return std::move(out_);
}

}  // namespace vramscope::imports
