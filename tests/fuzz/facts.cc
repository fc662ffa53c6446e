// SPDX-License-Identifier: Apache-2.0
#include "facts.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "output/answers.h"
#include "output/export/export.h"
#include "query/dimensions/report.h"
#include "util/containers/intern_table.h"

namespace vramscope::fuzz {
namespace {

constexpr size_t kBuckets = 64;

class Hash {
 public:
  Hash& operator<<(uint64_t value) {
    value_ = util::Mix64(value_ * 31 + value);
    return *this;
  }
  Hash& operator<<(std::string_view text) { return *this << std::hash<std::string_view>{}(text); }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 1;
};

uint64_t Bits(int64_t value) {
  return static_cast<uint64_t>(value);
}

}  // namespace

Facts FactsOf(trace::Trace& trace) {
  Hash all;
  const trace::SessionInfo& session = trace.session();
  all << session.name << Bits(session.start_ns) << Bits(session.end_ns)
      << Bits(session.start_wall_ns);
  for (const auto& [key, value] : session.notes)
    all << key << value;
  for (const trace::Device& device : trace.devices()) {
    all << static_cast<uint64_t>(device.kind) << Bits(device.index) << device.uuid << device.name
        << device.total_bytes;
  }
  for (const trace::Process& process : trace.processes()) {
    all << process.pid << process.parent_pid << Bits(process.rank.value_or(-1)) << process.command
        << process.executable << Bits(process.start_ns) << Bits(process.end_ns)
        << uint64_t{process.closed_cleanly} << Bits(process.wait_status.value_or(-1));
  }
  // A caller's row comes before its callee's.
  std::vector<uint64_t> stacks(trace.dictionaries().stack_count());
  for (uint32_t i = 1; i < stacks.size(); ++i) {
    const tables::StackRow& stack = trace.stack(tables::StackId{i});
    const tables::FrameRow& frame = trace.frame(stack.frame);
    Hash hash;
    hash << (stack.parent.value < i ? stacks[stack.parent.value] : 0)
         << trace.dictionaries().object(tables::StackId{i}) << static_cast<uint64_t>(frame.kind)
         << trace.string(frame.function) << trace.string(frame.file) << frame.line
         << trace.string(frame.image) << frame.pc;
    stacks[i] = hash.value();
  }
  const auto stack_of = [&](tables::StackId id) {
    return id.value < stacks.size() ? stacks[id.value] : 0;
  };
  const auto fields = [&](const trace::Event& event) {
    switch (event.type) {
#define VRAMSCOPE_EVENTS_ONLY
#define VRAMSCOPE_RECORD(Name, id, doc) \
  case id: {                            \
    const auto& e = event.As<trace::Name>();
#define VRAMSCOPE_ADDRESS(field) all << e.field;
#define VRAMSCOPE_UINT(field) all << e.field;
#define VRAMSCOPE_SINT(field) all << Bits(e.field);
#define VRAMSCOPE_BYTES(field) all << trace.string(e.field);
#define VRAMSCOPE_STRING(field) all << trace.string(e.field);
#define VRAMSCOPE_PY_STACK(field) all << stack_of(e.field);
#define VRAMSCOPE_NATIVE_STACK(field) all << stack_of(e.field);
#define VRAMSCOPE_DEVICE(field) all << Bits(e.field.value);
#define VRAMSCOPE_ENUM(Enum, field) all << static_cast<uint64_t>(e.field);
#define VRAMSCOPE_SINCE(field)
#define VRAMSCOPE_END \
  break;              \
  }
#include "format/records.def"
      default:
        break;
    }
  };
  Facts facts;
  const util::Status status = trace.ForEachEvent([&](std::span<const trace::Event> events) {
    facts.events += events.size();
    for (const trace::Event& e : events) {
      all << Bits(e.time_ns) << Bits(e.begin_ns) << Bits(e.end_ns) << trace.string(e.scope)
          << e.process.value << uint64_t{e.type} << uint64_t{e.has_origin} << e.origin_phase
          << e.origin_end << stack_of(e.origin_forward);
      fields(e);
      const auto threads = trace.threads();
      if (e.thread.value < threads.size())
        all << threads[e.thread.value].tid << threads[e.thread.value].name;
    }
  });
  all << status.message();
  for (const trace::Loss& loss : trace.losses()) {
    facts.losses +=
        loss.name + " " + std::to_string(loss.count) + " " + std::to_string(loss.bytes) + "\n";
  }
  facts.hash = all.value();
  return facts;
}

Facts FactsOf(const tables::Recording& recording) {
  Hash all;
  Facts facts;
  (void)output::ExportAllocationsCsv(recording, {}, [&](std::string_view piece) {
    all << piece;
    facts.events += static_cast<uint64_t>(std::count(piece.begin(), piece.end(), '\n'));
    return util::Status();
  });
  auto report = query::MakeReport(recording, {});
  const auto timelines = query::MakeTimelines(recording, kBuckets);
  if (report && timelines) {
    report->timelines = *timelines;
    all << output::ReportJson(*report, recording);
  }
  for (const tables::LossRow& loss : recording.tables().losses) {
    facts.losses += recording.string(loss.name);
    facts.losses += " " + std::to_string(loss.count) + " " + std::to_string(loss.bytes) + "\n";
  }
  facts.hash = all.value();
  return facts;
}

}  // namespace vramscope::fuzz
