// SPDX-License-Identifier: Apache-2.0
#include "resolve/immovable.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "format/enums.h"
#include "resolve/ledger/ledger.h"

namespace vramscope::resolve {
namespace {

using trace::Event;

constexpr size_t kKinds = static_cast<size_t>(ImmovableKind::kOverflow) + 1;

// Pids are reused: takes the last process with that pid.
trace::ProcessId ProcessOf(const trace::Trace& trace, uint32_t pid) {
  trace::ProcessId found = trace::kNoProcess;
  for (size_t i = 0; i < trace.processes().size(); ++i) {
    if (trace.processes()[i].pid != pid)
      continue;
    if (found == trace::kNoProcess ||
        trace.processes()[i].start_ns >= trace.processes()[found.value].start_ns) {
      found = trace::ProcessId{static_cast<uint16_t>(i)};
    }
  }
  return found;
}

// Only current memory matters.
class Nowhere : public tables::AllocationSink {
 public:
  util::Status Add(const tables::AllocationRow&) override { return {}; }
};

// Collects properties that the ledger does not keep, because they have no bytes.
class Search {
 public:
  Search(const trace::Trace& trace, trace::ProcessId process)
      : trace_(trace), process_(process), ledger_(trace, nowhere_) {}

  void Apply(std::span<const Event> events) {
    // The ledger must have all events before this one when its state is read.
    size_t done = 0;
    for (size_t i = 0; i < events.size(); ++i) {
      const Event& event = events[i];
      if (event.process != process_)
        continue;
      if (event.Is<trace::ProcessExit>()) {
        // The reader ends a process that it cannot read further. This process is alive.
        ledger_.Apply(events.subspan(done, i - done));
        done = i + 1;
      } else if (event.Is<trace::Share>() &&
                 event.As<trace::Share>().kind == format::ShareKind::kExport) {
        ledger_.Apply(events.subspan(done, i + 1 - done));
        done = i + 1;
        NoteExport(event.As<trace::Share>());
      } else {
        trace::Visit(event, [&](const auto& e) { On(e); });
      }
    }
    ledger_.Apply(events.subspan(done));
  }

  Movability Finish() {
    ledger_.objects().ForEach(process_, [&](const DriverObject& object) {
      const std::optional<ImmovableKind> kind = KindOf(object);
      if (kind)
        Add(*kind, BytesOf(object));
      if (const auto exported = exports_.find(object.number);
          exported != exports_.end() && kind != ImmovableKind::kOpened) {
        Add(ImmovableKind::kExported, exported->second);
      }
    });
    for (const auto& [pool, kind] : pools_)
      Add(kind, 0);
    Movability result;
    for (const Immovable& entry : found_) {
      if (entry.count != 0)
        result.immovable.push_back(entry);
    }
    result.gaps = Gaps();
    return result;
  }

 private:
  template <class Record>
  void On(const Record&) {}
  void On(const trace::State& e) { recording_ = e.state == format::RecordingState::kRecording; }
  void On(const trace::PoolCreate& e) {
    NoteCall(false);
    if (e.kind == format::PoolKind::kImported)
      pools_[e.pool] = ImmovableKind::kOpened;
  }
  void On(const trace::PoolDestroy& e) { pools_.erase(e.pool); }
  void On(const trace::Alloc&) { NoteCall(false); }
  void On(const trace::Free&) { NoteCall(false); }
  void On(const trace::HandleCreate&) { NoteCall(false); }
  void On(const trace::Map&) { NoteCall(false); }
  void On(const trace::Reading&) { NoteCall(false); }
  void On(const trace::ContextCreate&) { NoteCall(true); }
  void On(const trace::Implicit& e) { NoteCall(e.kind == format::ImplicitKind::kInit); }
  void On(const trace::Prior& e) {
    if (e.kind != format::PriorKind::kProcess)
      NoteCall(false);
  }
  // A process without a context had no memory before recording.
  void NoteCall(bool begins) {
    if (first_call_ == FirstCall::kNone)
      first_call_ = begins ? FirstCall::kBegins : FirstCall::kGoesOn;
  }

  void NoteExport(const trace::Share& share) {
    if (const DriverObject* object = ledger_.objects().SharedBy(process_, share))
      exports_[object->number] = BytesOf(*object);
  }

  std::optional<ImmovableKind> KindOf(const DriverObject& object) const {
    if (object.kind == ObjectKind::kHandle && trace_.string(object.api) == "cuMulticastCreate") {
      return ImmovableKind::kMulticast;
    }
    if (object.kind == ObjectKind::kMapping)
      return std::nullopt;
    switch (object.memory) {
      case format::MemoryKind::kManaged:
        return ImmovableKind::kManaged;
      case format::MemoryKind::kIpcImport:
        return ImmovableKind::kOpened;
      case format::MemoryKind::kExternal:
        return ImmovableKind::kExternal;
      case format::MemoryKind::kOverflow:
        return ImmovableKind::kOverflow;
      default:
        return std::nullopt;
    }
  }

  // An imported handle has no size. Its mappings give it.
  static uint64_t BytesOf(const DriverObject& object) {
    return std::max({object.size, object.priced, object.accounted});
  }

  void Add(ImmovableKind kind, uint64_t bytes) {
    Immovable& entry = found_[static_cast<size_t>(kind)];
    entry.kind = kind;
    ++entry.count;
    entry.bytes += bytes;
  }

  std::vector<std::string> Gaps() const {
    std::vector<std::string> gaps;
    if (!recording_)
      gaps.emplace_back("its recording is paused");
    if (ledger_.base().progress.processes[process_.value].began_late &&
        first_call_ != FirstCall::kBegins)
      gaps.emplace_back("its recording began when it was under way");
    // Losses that can hide an allocation.
    for (const format::Loss number :
         {format::Loss::kFileFull, format::Loss::kThreadLimit, format::Loss::kRecordTooLarge,
          format::Loss::kDamagedBytes, format::Loss::kDriverUnseen}) {
      const std::string name = format::LossName(static_cast<uint64_t>(number));
      for (const trace::Loss& loss : trace_.losses()) {
        if (loss.name == name && loss.count != 0)
          gaps.push_back("its recording is not complete (" + name + ")");
      }
    }
    return gaps;
  }

  const trace::Trace& trace_;
  const trace::ProcessId process_;
  Nowhere nowhere_;
  Ledger ledger_;
  std::map<uint64_t, uint64_t> exports_;  // bytes by object number
  std::map<uint64_t, ImmovableKind> pools_;
  std::array<Immovable, kKinds> found_;
  enum class FirstCall { kNone, kBegins, kGoesOn } first_call_ = FirstCall::kNone;
  bool recording_ = true;
};

}  // namespace

util::Result<Movability> FindImmovable(trace::Trace& trace,
                                       uint32_t pid,
                                       const std::function<void(double)>& progress) {
  const trace::ProcessId process = ProcessOf(trace, pid);
  if (process == trace::kNoProcess) {
    return util::Status::Error("process " + std::to_string(pid) + " is not in " +
                               trace.session().path);
  }
  Search search(trace, process);
  const trace::SessionInfo& session = trace.session();
  const double span = std::max<double>(1, static_cast<double>(session.end_ns - session.start_ns));
  VRAMSCOPE_RETURN_IF_ERROR(trace.ForEachEvent([&](std::span<const Event> events) {
    search.Apply(events);
    if (progress && !events.empty())
      progress(static_cast<double>(events.back().time_ns - session.start_ns) / span);
  }));
  return search.Finish();
}

}  // namespace vramscope::resolve
