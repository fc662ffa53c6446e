// SPDX-License-Identifier: Apache-2.0
#include "resolve/ledger/ledger.h"

#include <algorithm>

#include "resolve/driver/pricing.h"
#include "resolve/driver/sampled.h"

namespace vramscope::resolve {
namespace {

// The launcher notices the end of a process within this time. An unnoticed end is at most this long
// after the last event.
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
      captures_(trace),
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
    // Nearly all have a unique time already.
    const bool ties = event_count_ != 0 && said.time_ns <= progress.now_ns;
    if (ties) {
      later = said;
      later.time_ns = progress.now_ns + 1;
    }
    const trace::Event& event = ties ? later : said;
    progress.now_ns = event.time_ns;
    last_ns_ = std::max(last_ns_, event.time_ns);
    if (event.time_ns > next_host_sample_ns_) [[unlikely]]
      NoteHostSamples(event.time_ns);
    base_.prices.BeginEvent(event);
    if (!base_.accounts.HasProcess(event.process)) {
      ApplyOfNobody(event);
    } else {
      ProcessProgress& process = progress.processes[event.process.value];
      if (!event.Is<trace::ProcessExit>())
        process.last_ns = event.time_ns;
      if (!process.seen) {
        process.seen = true;
        base_.iterations.OnFirstEvent(event.process, event.time_ns);
      }
      trace::Visit(event, [&](const auto& e) { On(event, e); });
      if (segments_.HasRebacked()) [[unlikely]]
        blocks_.FollowMemory();
    }
    base_.prices.EndEvent();
    ++event_count_;
  }
}

void Ledger::NoteHostSamples(int64_t time_ns) {
  const std::span<const trace::HostSample> samples = base_.trace.host_samples();
  while (pinned_at_samples_.size() < samples.size() &&
         samples[pinned_at_samples_.size()].time_ns < time_ns)
    pinned_at_samples_.push_back(static_cast<uint64_t>(std::max<int64_t>(base_.pinned_bytes, 0)));
  next_host_sample_ns_ = pinned_at_samples_.size() < samples.size()
                             ? samples[pinned_at_samples_.size()].time_ns
                             : INT64_MAX;
}

void NvtxCounters::Add(const trace::EventContext& at, const trace::NvtxCounter& e) {
  tables::NvtxCounterId& id = ids[{at.process, e.counter}];
  if (id.value == 0) {
    counters.push_back({at.process, e.device, e.name});
    id.value = static_cast<uint32_t>(counters.size());
  }
  samples.push_back({id, at.time_ns, e.bytes});
}

// Only the launcher's samples and marks may have no process.
void Ledger::ApplyOfNobody(const trace::Event& event) {
  if (event.Is<trace::DeviceSample>())
    base_.prices.On(event, event.As<trace::DeviceSample>());
  else if (event.Is<trace::ProcessSample>())
    base_.prices.On(event, event.As<trace::ProcessSample>());
  else if (event.Is<trace::Mark>())
    marks_.push_back({event.As<trace::Mark>().name, event.time_ns, event.process});
}

// ---- inputs of the pricer; the first one gives the process an account on the device

void Ledger::On(const trace::EventContext& at, const trace::ContextCreate& e) {
  if (base_.accounts.HasDevice(e.device))
    objects_.NoteCalls(AccountOf(at, e.device));
  base_.phases.OnCall(at, e.stack);
  base_.prices.On(at, e);
}

void Ledger::On(const trace::EventContext& at, const trace::ContextDestroy& e) {
  if (!base_.accounts.HasDevice(e.device))
    return;
  AccountOf(at, e.device);
  objects_.EndContext(at.process, e.context);
  base_.prices.On(at, e);
}

void Ledger::On(const trace::EventContext& at, const trace::Implicit& e) {
  if (base_.accounts.HasDevice(e.device))
    AccountOf(at, e.device);
  base_.phases.OnCall(at, e.stack);
  captures_.On(at, e);
  base_.prices.On(at, e);
}

void Ledger::On(const trace::EventContext& at, const trace::Reading& e) {
  if (!base_.accounts.HasDevice(e.device) || e.total < e.free)
    return;
  AccountOf(at, e.device);
  base_.prices.On(at, e);
}

void Ledger::On(const trace::EventContext& at, const trace::ProcessSample& e) {
  base_.prices.On(at, e);
  if (base_.accounts.HasDevice(e.device) && base_.prices.HasFigure(at.process, e.device) &&
      (base_.trace.session().sampled || base_.progress.processes[at.process.value].began_late))
    AccountOf(at, e.device);
}

void Ledger::On(const trace::EventContext& at, const trace::Prior& e) {
  if (e.kind != format::PriorKind::kProcess)
    return blocks_.On(at, e);
  ProcessProgress& process = base_.progress.processes[at.process.value];
  process.began_late = true;
  process.had_torch = e.size != 0;  // from python/vramscope/_before.py
  base_.prices.NoteLateStart(at);
  for (size_t i = 0; i < base_.trace.devices().size(); ++i) {
    const trace::DeviceId device{static_cast<int16_t>(i)};
    if (base_.prices.HasFigure(at.process, device))
      AccountOf(at, device);
  }
}

// ---- annotations of the program

void Ledger::On(const trace::EventContext& at, const trace::Name& e) {
  using format::NameKind;
  if (e.address == 0 || e.kind == NameKind::kCommunicator || e.kind > NameKind::kRegion)
    return;
  if (e.kind == NameKind::kPath)
    return blocks_.NamePath(at, e.device, e.address, e.name);
  MemoryName name{e.kind, e.name, e.detail, e.owner, 0};
  if (e.kind == NameKind::kRegion)
    return objects_.NameRegion(at, e.address, name);
  if (e.kind == NameKind::kPool || e.kind == NameKind::kPrivatePool) {
    name.kind = NameKind::kPool;
    return e.kind == NameKind::kPool ? pools_.Name(at.process, e.address, name)
                                     : objects_.NamePrivatePool(at.process, e.address, name);
  }
  if (e.kind == NameKind::kParameter)
    modules_.OnParameter(at.process, e.owner);
  name.requested = e.size > kLargestSize ? 0 : e.size;
  if (e.bytes <= name.requested && e.offset <= name.requested - e.bytes) {
    name.offset = e.offset;
    name.bytes = e.bytes;
  }
  bool found = false;
  if (base_.accounts.HasDevice(e.device)) {
    found = blocks_.Name(at, e.device, e.address, name);
  } else {
    for (size_t i = 0; i < base_.trace.devices().size() && !found; ++i)
      found = blocks_.Name(at, trace::DeviceId{static_cast<int16_t>(i)}, e.address, name);
  }
  if (found || objects_.Name(at, e.address, name) || blocks_.IsOfAncestor(at.process, e.address) ||
      !lost_names_.emplace(at.process, e.address, e.name).second)
    return;
  ++base_.progress.unknown_names.count;
  base_.progress.unknown_names.bytes += name.requested;
}

void Ledger::On(const trace::EventContext& at, const trace::Communicator& e) {
  if (at.process == trace::kNoProcess || e.communicator == 0)
    return;
  if (e.ranks != 0)
    communicator_ranks_[e.communicator] = e.ranks;
  objects_.On(at, e);
}

void Ledger::On(const trace::EventContext& at, const trace::XlaBlock& e) {
  blocks_.On(at, e);
  base_.iterations.On(at, e);
  if (!trace().session().xla_dumps.empty())
    xla_programs_.On(e);
}

void Ledger::On(const trace::EventContext& at, const trace::ModuleGone& e) {
  ++base_.progress.processes[at.process.value].modules_gone;
  modules_.On(at, e);
}

void Ledger::On(const trace::EventContext& at, const trace::Mark& e) {
  marks_.push_back({e.name, at.time_ns, at.process});
  base_.phases.On(at, e);
  if (base_.iterations.OnMark(at, e))
    base_.phases.OnIteration(at);
}

void Ledger::On(const trace::EventContext& at, const trace::Capture& e) {
  captures_.On(at, e);
}

void Ledger::On(const trace::EventContext& at, const trace::NvtxCounter& e) {
  nvtx_counters_.Add(at, e);
}

void Ledger::On(const trace::EventContext& at, const trace::Step& e) {
  base_.phases.On(at, e);
  base_.iterations.On(at, e);
}

void Ledger::On(const trace::EventContext& at, const trace::Past& e) {
  base_.phases.On(at, e);
  base_.iterations.On(at, e);
}

void Ledger::On(const trace::EventContext& at, const trace::OutOfMemory& e) {
  if (base_.accounts.HasDevice(e.device))
    AddOutOfMemory(at, e.device, e.requested, e.stack, {}, {});
}

void Ledger::On(const trace::EventContext& at, const trace::Failure& e) {
  if (base_.accounts.HasDevice(e.device) && e.result == kOutOfMemory)
    AddOutOfMemory(at, e.device, e.size, e.stack, e.native, e.api);
}

void Ledger::AddOutOfMemory(const trace::EventContext& at,
                            trace::DeviceId device,
                            uint64_t bytes,
                            tables::StackId stack,
                            tables::StackId native,
                            tables::StringId api) {
  out_of_memory_.push_back({base_.accounts.RowOf(AccountOf(at, device)), at.time_ns, bytes,
                            at.thread, stack, native, api});
}

// ---- ends

void Ledger::On(const trace::EventContext& at, const trace::Teardown& e) {
  ProcessProgress& process = base_.progress.processes[at.process.value];
  if (process.torn_down)
    return;
  process.torn_down = true;
  process.teardown_ns = at.time_ns;
  process.exit_ns = at.time_ns;
  base_.phases.OnTeardown(at.process);
  base_.prices.On(at, e);
}

void Ledger::On(const trace::EventContext& at, const trace::ProcessExit&) {
  ProcessProgress& process = base_.progress.processes[at.process.value];
  if (process.ended)
    return;
  process.ended = true;
  if (process.exit_ns == 0)
    process.exit_ns = at.time_ns - 1;
  // The driver frees the memory while the process ends, without an event. The end is noticed
  // slightly later.
  const int64_t noticed_ns = std::min(at.begin_ns, at.time_ns) - kNoticedAfterNs;
  const int64_t begin_ns =
      process.torn_down ? process.teardown_ns : std::max(process.last_ns, noticed_ns);
  base_.prices.NoteProcessEnd(at, begin_ns, at.time_ns + kEndsWithinNs);
  const auto for_each_account = [&](auto visit) {
    for (uint32_t account = 0; account < base_.accounts.count(); ++account) {
      if (base_.accounts[account].process == at.process)
        visit(account);
    }
  };
  for_each_account([&](uint32_t account) { blocks_.End(account); });
  for_each_account([&](uint32_t account) {
    objects_.End(account);
    segments_.EndCounted(account);
    pools_.End(account);
    base_.counters.EndBefore(account);
    base_.accounts[account].end_ns = at.time_ns;
  });
}

void Ledger::Finish() {
  base_.progress.finished = true;
  NoteHostSamples(INT64_MAX);
  for (ProcessProgress& process : base_.progress.processes) {
    if (process.exit_ns == 0)
      process.exit_ns = last_ns_;  // it continues
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
