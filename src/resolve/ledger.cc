// SPDX-License-Identifier: Apache-2.0
#include "resolve/ledger.h"

#include <algorithm>

#include "resolve/pricing.h"
#include "resolve/sampled.h"

namespace vramscope::resolve {
namespace {

// Times of a damaged trace can be anything; sums and differences of these cannot overflow.
constexpr int64_t kLatestNs = int64_t{1} << 61;
// The end of a process is seen within this time; where nobody saw it, it was so long after its last
// event at most.
constexpr int64_t kNoticedAfterNs = 1'000'000'000;
constexpr int64_t kEndsWithinNs = 100'000'000;
// CUDA_ERROR_OUT_OF_MEMORY
constexpr uint64_t kOutOfMemory = 2;

}  // namespace

Ledger::Ledger(const trace::Trace& trace, tables::AllocationSink& sink)
    : base_(trace, sink),
      segments_(base_),
      slabs_(base_),
      pools_(base_, segments_),
      rows_(base_, segments_, slabs_),
      objects_(base_, segments_, slabs_, pools_, rows_),
      blocks_(base_, segments_, rows_, objects_),
      modules_(trace),
      first_ns_(trace.session().start_ns) {}

void Ledger::Apply(std::span<const trace::Event> events) {
  Progress& progress = base_.progress;
  trace::Event later;
  for (const trace::Event& said : events) {
    if (said.time_ns > kLatestNs || said.time_ns < -kLatestNs)
      continue;
    if (event_count_ == 0 && first_ns_ == 0)
      first_ns_ = said.time_ns;
    // Nearly all have a time of their own already.
    const bool ties = event_count_ != 0 && said.time_ns <= progress.now_ns;
    if (ties) {
      later = said;
      later.time_ns = progress.now_ns + 1;
    }
    const trace::Event& event = ties ? later : said;
    progress.now_ns = event.time_ns;
    last_ns_ = std::max(last_ns_, event.time_ns);
    base_.prices.BeginEvent(event);
    if (!base_.accounts.HasProcess(event.process)) {
      ApplyOfNobody(event);
    } else {
      ProcessProgress& process = progress.processes[event.process.value];
      if (event.kind != trace::EventKind::kProcessEnd)
        process.last_ns = event.time_ns;
      if (!process.seen) {
        process.seen = true;
        base_.iterations.OnFirstEvent(event.process, event.time_ns);
      }
      ApplyOne(event);
      if (segments_.HasRebacked()) [[unlikely]]
        blocks_.FollowMemory();
    }
    base_.prices.EndEvent();
    ++event_count_;
  }
}

// Only the launcher's samples and marks may belong to no process.
void Ledger::ApplyOfNobody(const trace::Event& event) {
  if (event.kind == trace::EventKind::kDeviceSample)
    base_.prices.OnDeviceSample(event);
  else if (event.kind == trace::EventKind::kProcessSample)
    base_.prices.OnProcessSample(event);
  else if (event.kind == trace::EventKind::kMark)
    marks_.push_back({event.name, event.time_ns, event.process});
}

void Ledger::ApplyOne(const trace::Event& event) {
  using trace::EventKind;
  switch (event.kind) {
    case EventKind::kBlockAlloc:
      return blocks_.OnAlloc(event);
    case EventKind::kBlockFree:
      return blocks_.OnFree(event);
    case EventKind::kAllocatorTotals:
      return blocks_.OnTotals(event);
    case EventKind::kState:
      return blocks_.OnState(event);
    case EventKind::kAlloc:
      return objects_.OnAlloc(event);
    case EventKind::kFree:
      return objects_.OnFree(event);
    case EventKind::kHandleCreate:
      return objects_.OnHandleCreate(event);
    case EventKind::kHandleRelease:
      return objects_.OnHandleRelease(event);
    case EventKind::kHandleRetain:
      return objects_.OnHandleRetain(event);
    case EventKind::kShare:
      return objects_.OnShare(event);
    case EventKind::kMap:
      return objects_.OnMap(event);
    case EventKind::kUnmap:
      return objects_.OnUnmap(event);
    case EventKind::kReserve:
      return objects_.OnReserve(event);
    case EventKind::kUnreserve:
      return objects_.OnUnreserve(event);
    case EventKind::kPoolCreate:
      return pools_.OnCreate(event);
    case EventKind::kPoolDestroy:
      return pools_.OnDestroy(event);
    case EventKind::kPoolReading:
      return pools_.OnReading(event);
    case EventKind::kContextCreate:
      if (base_.accounts.HasDevice(event.device))
        objects_.NoteCalls(AccountOf(event));
      return base_.prices.OnContextCreate(event);
    case EventKind::kContextDestroy:
      return OnContextDestroy(event);
    case EventKind::kImplicit:
      return OnImplicit(event);
    case EventKind::kReading:
      return OnReading(event);
    case EventKind::kDeviceSample:
      return base_.prices.OnDeviceSample(event);
    case EventKind::kProcessSample:
      return OnProcessSample(event);
    case EventKind::kCheckpoint:
      return base_.prices.OnCheckpoint(event);
    case EventKind::kPrior:
      return OnPrior(event);
    case EventKind::kName:
      return OnName(event);
    case EventKind::kCommunicator:
      return OnCommunicator(event);
    case EventKind::kModule:
      return modules_.OnModule(event);
    case EventKind::kModuleGone:
      ++base_.progress.processes[event.process.value].modules_gone;
      return modules_.OnGone(event);
    case EventKind::kMark:
      marks_.push_back({event.name, event.time_ns, event.process});
      if (base_.iterations.OnMark(event))
        base_.phases.OnIteration(event);
      return;
    case EventKind::kStep:
      base_.phases.OnStep(event);
      return base_.iterations.OnStep(event);
    case EventKind::kTeardown:
      return OnTeardown(event);
    case EventKind::kProcessEnd:
      return OnProcessEnd(event);
    case EventKind::kOutOfMemory:
    case EventKind::kFailure:
      return OnOutOfMemory(event);
    case EventKind::kPast:
      base_.phases.OnPast(event);
      return base_.iterations.OnPast(event);
  }
}

// ---- what the pricer looks at: from the first of it on, the process has an account there

void Ledger::OnImplicit(const trace::Event& event) {
  if (base_.accounts.HasDevice(event.device))
    AccountOf(event);
  base_.prices.OnImplicit(event);
}

void Ledger::OnContextDestroy(const trace::Event& event) {
  if (!base_.accounts.HasDevice(event.device))
    return;
  AccountOf(event);
  objects_.EndContext(event.process, event.address != 0 ? event.address : event.context);
  base_.prices.OnContextDestroy(event);
}

void Ledger::OnReading(const trace::Event& event) {
  if (!base_.accounts.HasDevice(event.device) || event.value < event.size)
    return;
  AccountOf(event);
  base_.prices.OnReading(event);
}

void Ledger::OnProcessSample(const trace::Event& event) {
  base_.prices.OnProcessSample(event);
  if (base_.accounts.HasDevice(event.device) &&
      base_.prices.HasFigure(event.process, event.device) &&
      (base_.trace.session().sampled || base_.progress.processes[event.process.value].began_late))
    AccountOf(event);
}

void Ledger::OnPrior(const trace::Event& event) {
  if (event.subkind != static_cast<uint8_t>(format::PriorKind::kProcess))
    return blocks_.OnPrior(event);
  ProcessProgress& process = base_.progress.processes[event.process.value];
  process.began_late = true;
  process.had_torch = event.size != 0;  // what python/vramscope/_before.py says of a process
  base_.prices.OnLateStart(event);
  for (size_t i = 0; i < base_.trace.devices().size(); ++i) {
    const trace::DeviceId device{static_cast<int16_t>(i)};
    if (base_.prices.HasFigure(event.process, device))
      base_.accounts.FindOrAdd(event.process, device, event.time_ns);
  }
}

// ---- what the program says

void Ledger::OnName(const trace::Event& event) {
  using format::NameKind;
  if (event.address == 0 || event.subkind > static_cast<uint8_t>(NameKind::kPrivatePool))
    return;
  const auto kind = static_cast<NameKind>(event.subkind);
  if (kind == NameKind::kPool)
    return pools_.OnName(event);
  if (kind == NameKind::kPrivatePool)
    return objects_.OnPrivatePool(event);
  if (kind == NameKind::kParameter)
    modules_.OnParameter(event);
  const uint64_t requested = event.size > kLargestSize ? 0 : event.size;
  MemoryName name{kind, event.name, event.api, event.value, requested};
  if (event.detail <= requested && event.value2 <= requested - event.detail) {
    name.offset = event.value2;
    name.bytes = event.detail;
  }
  bool found = false;
  if (base_.accounts.HasDevice(event.device)) {
    found = blocks_.Name(event, event.device, name);
  } else {
    for (size_t i = 0; i < base_.trace.devices().size() && !found; ++i)
      found = blocks_.Name(event, trace::DeviceId{static_cast<int16_t>(i)}, name);
  }
  if (found || objects_.Name(event, name) || blocks_.IsOfAncestor(event) ||
      !lost_names_.emplace(event.process, event.address, event.name).second)
    return;
  ++base_.progress.unknown_names.count;
  base_.progress.unknown_names.bytes += requested;
}

void Ledger::OnCommunicator(const trace::Event& event) {
  if (event.process == trace::kNoProcess || event.address == 0)
    return;
  if (event.value != 0)
    communicator_ranks_[event.address] = event.value;
  objects_.OnCommunicator(event);
}

void Ledger::OnOutOfMemory(const trace::Event& event) {
  const bool by_driver = event.kind == trace::EventKind::kFailure;
  if (!base_.accounts.HasDevice(event.device) || (by_driver && event.value != kOutOfMemory))
    return;
  out_of_memory_.push_back({base_.accounts.RowOf(AccountOf(event)), event.time_ns, event.size,
                            tables::ThreadId{event.thread.value},
                            tables::StackId{event.stack.value},
                            tables::StackId{event.native_stack.value},
                            tables::StringId{by_driver ? event.api.value : 0}});
}

// ---- ends

void Ledger::OnTeardown(const trace::Event& event) {
  ProcessProgress& process = base_.progress.processes[event.process.value];
  if (process.torn_down)
    return;
  process.torn_down = true;
  process.teardown_ns = event.time_ns;
  process.exit_ns = event.time_ns;
  base_.phases.OnTeardown(event.process);
  base_.prices.OnTeardown(event);
}

void Ledger::OnProcessEnd(const trace::Event& event) {
  ProcessProgress& process = base_.progress.processes[event.process.value];
  if (process.ended)
    return;
  process.ended = true;
  if (process.exit_ns == 0)
    process.exit_ns = event.time_ns - 1;
  // The driver gives the memory back at some moment of the process's end, without an event; that it
  // ended is noticed a little later.
  const int64_t noticed_ns = std::min(event.begin_ns, event.time_ns) - kNoticedAfterNs;
  const int64_t begin_ns =
      process.torn_down ? process.teardown_ns : std::max(process.last_ns, noticed_ns);
  base_.prices.OnProcessEnd(event, begin_ns, event.time_ns + kEndsWithinNs);
  const auto for_each_account = [&](auto visit) {
    for (uint32_t account = 0; account < base_.accounts.count(); ++account) {
      if (base_.accounts[account].process == event.process)
        visit(account);
    }
  };
  for_each_account([&](uint32_t account) { blocks_.End(account); });
  for_each_account([&](uint32_t account) {
    objects_.End(account);
    segments_.EndCounted(account);
    pools_.End(account);
    base_.counters.EndBefore(account);
    base_.accounts[account].end_ns = event.time_ns;
  });
}

void Ledger::Finish() {
  base_.progress.finished = true;
  for (ProcessProgress& process : base_.progress.processes) {
    if (process.exit_ns == 0)
      process.exit_ns = last_ns_;  // it goes on
  }
  modules_.Finish();
  base_.iterations.Finish();
  blocks_.Finish();
  objects_.Finish();
  base_.prices.Finish();
  for (size_t i = 0; i < base_.trace.devices().size(); ++i) {
    const price::DeviceInput& input = base_.prices.input(i);
    prices_.push_back(base_.trace.session().sampled ? PriceSampledDevice(input)
                                                    : price::PriceDevice(input));
    base_.counters.AddPriced(trace::DeviceId{static_cast<int16_t>(i)}, prices_.back());
  }
  rows_.EndArrays(prices_);
  base_.counters.Finish();
}

}  // namespace vramscope::resolve
