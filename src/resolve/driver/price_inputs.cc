// SPDX-License-Identifier: Apache-2.0
#include "resolve/driver/price_inputs.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "resolve/attribute/owners.h"
#include "resolve/driver/pricing.h"

namespace vramscope::resolve {
namespace {

// The driver-owned part that a call of this kind fills.
Part PartOf(format::ImplicitKind kind) {
  switch (kind) {
    case format::ImplicitKind::kInit:
    case format::ImplicitKind::kContext:
      return Part::kContext;
    case format::ImplicitKind::kModule:
    case format::ImplicitKind::kFunction:
      return Part::kCode;
    case format::ImplicitKind::kLaunch:
      return Part::kLaunch;
    case format::ImplicitKind::kLimit:
      return Part::kLimits;
    case format::ImplicitKind::kStream:
      return Part::kStreams;
    case format::ImplicitKind::kGraph:
      return Part::kGraphs;
    case format::ImplicitKind::kManaged:
      return Part::kUvmDriver;
    case format::ImplicitKind::kEvent:
    case format::ImplicitKind::kPeer:
    case format::ImplicitKind::kOther:
      break;
  }
  return Part::kOtherDriver;
}

// A newer writer may use other values.
format::ImplicitKind Known(format::ImplicitKind kind) {
  return kind <= format::ImplicitKind::kManaged ? kind : format::ImplicitKind::kOther;
}

bool OnlyTakes(format::ImplicitKind kind, std::string_view api) {
  using format::ImplicitKind;
  return kind == ImplicitKind::kInit || kind == ImplicitKind::kFunction ||
         kind == ImplicitKind::kLaunch ||
         (kind == ImplicitKind::kStream && api.find("Destroy") == std::string_view::npos) ||
         (kind == ImplicitKind::kModule && api.find("Unload") == std::string_view::npos);
}

// A context that was made without a recorded call is usually the primary one. The probe then names
// it so.
bool IsOfPrimary(std::string_view api) {
  return api.starts_with("cuDevicePrimaryCtx") || api == "primary context";
}

// Memory of the driver from before the recording.
bool IsPriorMemory(const trace::Event& event) {
  if (!event.Is<trace::Prior>())
    return false;
  const format::PriorKind kind = event.As<trace::Prior>().kind;
  return kind == format::PriorKind::kSegment || kind == format::PriorKind::kAllocation;
}

bool Asks(const trace::Event& event) {
  return event.Is<trace::Alloc>() || event.Is<trace::HandleCreate>() ||
         event.Is<trace::PoolReading>();
}

// Block events are not driver calls.
bool IsOfBlocks(const trace::Event& event) {
  return event.Is<trace::BlockAlloc>() || event.Is<trace::BlockFree>() ||
         event.Is<trace::PoolBlock>() || event.Is<trace::XlaBlock>() ||
         event.Is<trace::GraphTensor>() || event.Is<trace::AllocatorTotals>() ||
         (event.Is<trace::Prior>() && !IsPriorMemory(event));
}

// Whether local memory may grow: by a new limit, or for code that needs more than all code before.
// The driver may know its kernels at load time. Seen on H100s: during a cuKernelGetFunction of
// NCCL, the device briefly had 410 MiB less, and 94 MiB more afterwards.
bool Reallocates(format::ImplicitKind kind) {
  switch (kind) {
    case format::ImplicitKind::kLimit:
    case format::ImplicitKind::kLaunch:
    case format::ImplicitKind::kModule:
    case format::ImplicitKind::kFunction:
      return true;
    default:
      return false;
  }
}

template <class Record>
PriceInputs::Caller CallerOf(const trace::EventContext& at, const Record& e) {
  PriceInputs::Caller caller{.thread = at.thread};
  if constexpr (requires { e.api; })
    caller.api = e.api;
  if constexpr (requires { e.stack; })
    caller.stack = e.stack;
  if constexpr (requires { e.native; })
    caller.native = e.native;
  return caller;
}

PriceInputs::Caller CallerOf(const trace::Event& event) {
  return trace::Visit(event, [&](const auto& e) { return CallerOf(event, e); });
}

}  // namespace

PriceInputs::PriceInputs(const trace::Trace& trace) : trace_(trace), gpus_(trace.devices().size()) {
  for (size_t i = 0; i < gpus_.size(); ++i) {
    gpus_[i].is_gpu = trace.devices()[i].kind == tables::DeviceKind::kGpu;
    gpus_[i].input.processes.resize(trace.processes().size());
    gpus_[i].has_figure.resize(trace.processes().size());
  }
}

price::When PriceInputs::WhenOf(const trace::EventContext& at) {
  const int64_t begin_ns = std::clamp(at.begin_ns, -kLatestNs, kLatestNs);
  return {at.time_ns, begin_ns, std::clamp(at.end_ns, begin_ns, kLatestNs)};
}

// ---- explicit calls

void PriceInputs::AddMove(const Moved& moved) {
  for (Moved& other : moves_) {
    if (other.process == moved.process && other.device == moved.device) {
      other.bytes += moved.bytes;
      return;
    }
  }
  moves_.push_back(moved);
}

void PriceInputs::Flush() {
  for (const Moved& moved : array_moves_)
    Flush(moved);
  for (const Moved& moved : moves_) {
    if (moved.bytes != 0)
      Flush(moved);
  }
  for (const trace::DeviceId device : called_) {
    const auto is_of_it = [&](const Moved& moved) {
      return moved.device == device && moved.bytes != 0;
    };
    if (std::none_of(moves_.begin(), moves_.end(), is_of_it) &&
        std::none_of(array_moves_.begin(), array_moves_.end(), is_of_it))
      NoteIdle(gpus_[static_cast<size_t>(device.value)]);
  }
  moves_.clear();
  array_moves_.clear();
  called_.clear();
}

void PriceInputs::Flush(const Moved& moved) {
  if (IsOfBlocks(*event_)) {
    Gpu& gpu = gpus_[static_cast<size_t>(moved.device.value)];
    const auto same = std::find_if(gpu.block_bytes.begin(), gpu.block_bytes.end(),
                                   [&](const auto& of) { return of.first == moved.process; });
    if (same == gpu.block_bytes.end())
      gpu.block_bytes.emplace_back(moved.process, moved.bytes);
    else
      same->second += moved.bytes;
    gpu.block_ns = event_->time_ns;
    gpu.block_caller = CallerOf(*event_);
    return;
  }
  Gpu& gpu = Next(moved.device);
  price::When when = WhenOf(*event_);
  if (event_->Is<trace::ProcessExit>())
    when = gpu.input.processes[event_->process.value].end.value_or(when);
  AddMove(gpu,
          {when, moved.process, moved.bytes, moved.array, IsPriorMemory(*event_), Asks(*event_)},
          CallerOf(*event_));
}

void PriceInputs::AddMove(Gpu& gpu, const price::Move& move, const Caller& caller) {
  gpu.input.moves.push_back(move);
  gpu.move_callers.push_back(caller);
}

void PriceInputs::FlushBlocks(Gpu& gpu) {
  for (const auto& [process, bytes] : gpu.block_bytes) {
    if (bytes != 0)
      AddMove(
          gpu,
          {{gpu.block_ns, gpu.block_ns, gpu.block_ns}, process, bytes, price::kNone, false, false},
          gpu.block_caller);
  }
  gpu.block_bytes.clear();
}

// A program that allocates from pools makes millions of calls that move nothing. Two consecutive
// ones have no figure between them, so they are merged.
void PriceInputs::NoteIdle(Gpu& gpu) {
  const price::When when = WhenOf(*event_);
  const bool asks = Asks(*event_);
  if (gpu.idle_last) {
    price::Move& last = gpu.input.moves.back();
    if (last.process == event_->process.value && (last.asks || !asks)) {
      last.when.begin_ns = std::min(last.when.begin_ns, when.begin_ns);
      last.when.end_ns = std::max(last.when.end_ns, when.end_ns);
      gpu.move_callers.back() = CallerOf(*event_);
      return;
    }
  }
  FlushBlocks(gpu);
  AddMove(gpu, {when, event_->process.value, 0, price::kNone, false, asks}, CallerOf(*event_));
  gpu.idle_last = true;
}

uint32_t PriceInputs::NewManaged(trace::ProcessId process, int64_t bytes, const Caller& caller) {
  const auto [site, added] = managed_sites_.try_emplace(
      std::array<uint32_t, 6>{process.value, caller.api.value, caller.stack.value,
                              caller.native.value, caller.thread.value,
                              static_cast<uint32_t>(caller.owner)},
      static_cast<uint32_t>(managed_callers_.size()));
  if (added)
    managed_callers_.push_back(caller);
  ForEachGpu([&, number = site->second, is_new = added](Gpu& gpu) {
    if (is_new)
      gpu.input.managed_sites.push_back(process.value);
    gpu.input.managed_allocations.push_back({number, bytes});
  });
  return managed_count_++;
}

void PriceInputs::MoveManaged(uint32_t number, bool frees) {
  ForEachGpu([&](Gpu& gpu) {
    gpu.input.managed_moves.push_back({WhenOf(*event_), number, frees});
  });
}

// ---- implicit calls

void PriceInputs::AddCall(const trace::EventContext& at,
                          trace::DeviceId device,
                          const Caller& caller,
                          price::ImplicitCall call) {
  Gpu& gpu = Next(device);
  call.when = WhenOf(at);
  call.process = at.process.value;
  if (call.text.empty())
    call.text = trace_.string(caller.api);
  gpu.input.calls.push_back(std::move(call));
  gpu.callers.push_back(caller);
}

// Calls such as cuInit have no device and may take memory on each.
void PriceInputs::On(const trace::EventContext& at, const trace::Implicit& e) {
  const format::ImplicitKind kind = Known(e.kind);
  const std::string_view api = trace_.string(e.api);
  const std::string_view name = trace_.string(e.name);
  price::ImplicitCall call;
  call.part = PartOf(kind);
  if (kind == format::ImplicitKind::kInit)
    call.kind = price::ImplicitCall::Kind::kInit;
  call.only_takes = OnlyTakes(kind, api);
  call.context = e.context;
  call.text = api;
  call.text.append(api.empty() || name.empty() ? "" : " ").append(name);
  if (IsGpu(e.device)) {
    call.reallocates = Reallocates(kind);
    return AddCall(at, e.device, CallerOf(at, e), std::move(call));
  }
  for (size_t i = 0; i < gpus_.size(); ++i) {
    if (gpus_[i].is_gpu)
      AddCall(at, trace::DeviceId{static_cast<int16_t>(i)}, CallerOf(at, e), call);
  }
}

void PriceInputs::On(const trace::EventContext& at, const trace::ContextCreate& e) {
  if (!IsGpu(e.device))
    return;
  price::ImplicitCall call;
  call.part = Part::kContext;
  call.kind = price::ImplicitCall::Kind::kContextCreate;
  call.only_takes = true;
  // The driver made it implicitly: only its begin is recorded.
  call.until_reading = at.begin_ns == at.end_ns;
  call.context = e.context;
  call.is_primary = IsOfPrimary(trace_.string(e.api));
  AddCall(at, e.device, CallerOf(at, e), std::move(call));
}

void PriceInputs::On(const trace::EventContext& at, const trace::ContextDestroy& e) {
  if (!IsGpu(e.device))
    return;
  price::ImplicitCall call;
  call.part = Part::kContext;
  call.kind = price::ImplicitCall::Kind::kContextDestroy;
  call.context = e.context;
  call.is_primary = IsOfPrimary(trace_.string(e.api));
  AddCall(at, e.device, CallerOf(at, e), std::move(call));
}

// ---- figures

void PriceInputs::On(const trace::EventContext& at, const trace::Reading& e) {
  if (IsGpu(e.device) && e.total >= e.free && e.total <= kLargestSize)
    Next(e.device).input.readings.push_back(
        {WhenOf(at), at.process.value, static_cast<int64_t>(e.total - e.free)});
}

void PriceInputs::On(const trace::EventContext& at, const trace::DeviceSample& e) {
  if (!IsGpu(e.device) || e.used > kLargestSize)
    return;
  Gpu& gpu = Next(e.device);
  gpu.input.samples.push_back({WhenOf(at), static_cast<int64_t>(e.used)});
  gpu.repeats.push_back(static_cast<uint32_t>(std::min<uint64_t>(e.repeats, UINT32_MAX)));
}

void PriceInputs::On(const trace::EventContext& at, const trace::ProcessSample& e) {
  if (!IsGpu(e.device) || e.used > kLargestSize)
    return;
  Gpu& gpu = Next(e.device);
  const bool is_recorded = at.process.value < gpu.has_figure.size();
  gpu.input.figures.push_back(
      {WhenOf(at), is_recorded ? at.process.value : price::kNone, static_cast<int64_t>(e.used)});
  if (is_recorded)
    gpu.has_figure[at.process.value] = true;
}

// ---- processes

void PriceInputs::On(const trace::EventContext& at, const trace::Checkpoint& e) {
  const bool leaves = e.kind == format::CheckpointKind::kCheckpoint;
  if (!leaves && e.kind != format::CheckpointKind::kRestore)
    return;
  ForEachGpu([&](Gpu& gpu) {
    if (!gpu.input.processes[at.process.value].end)
      gpu.input.checkpoints.push_back({WhenOf(at), at.process.value, leaves});
  });
}

void PriceInputs::NoteShare(const trace::EventContext& at) {
  ForEachGpu([&](Gpu& gpu) {
    int64_t& shares_ns = gpu.input.processes[at.process.value].shares_ns;
    shares_ns = std::min(shares_ns, at.time_ns);
  });
}

void PriceInputs::On(const trace::EventContext& at, const trace::Teardown&) {
  ForEachGpu([&](Gpu& gpu) { gpu.input.processes[at.process.value].teardown_ns = at.time_ns; });
}

void PriceInputs::NoteLateStart(const trace::EventContext& at) {
  ForEachGpu([&](Gpu& gpu) {
    int64_t& late_ns = gpu.input.processes[at.process.value].late_ns;
    late_ns = std::min(late_ns, at.time_ns);
  });
}

void PriceInputs::NoteProcessEnd(const trace::EventContext& at, int64_t begin_ns, int64_t end_ns) {
  begin_ns = std::clamp(begin_ns, -kLatestNs, kLatestNs);
  ForEachGpu([&](Gpu& gpu) {
    gpu.input.processes[at.process.value].end =
        price::When{at.time_ns, begin_ns, std::max(begin_ns, end_ns)};
  });
}

void PriceInputs::Finish() {
  ForEachGpu([](Gpu&) {});
}

}  // namespace vramscope::resolve
