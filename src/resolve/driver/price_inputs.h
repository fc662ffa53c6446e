// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "resolve/attribute/owners.h"
#include "resolve/price/price.h"
#include "trace/trace.h"

namespace vramscope::resolve {

// Collects what the pricer is to know of each GPU, in the order of the events, and who made the
// calls that it prices.
class PriceInputs {
 public:
  struct Caller {
    tables::StringId api;
    tables::StackId stack;
    tables::StackId native;
    tables::ThreadId thread;
    OwnerId owner;  // of managed memory
  };

  explicit PriceInputs(const trace::Trace& trace);

  bool IsGpu(trace::DeviceId device) const {
    return device.value >= 0 && static_cast<size_t>(device.value) < gpus_.size() &&
           gpus_[static_cast<size_t>(device.value)].is_gpu;
  }
  // By device; empty for what is no GPU.
  const price::DeviceInput& input(size_t device) const { return gpus_[device].input; }
  // By call of that input.
  const std::vector<Caller>& callers(size_t device) const { return gpus_[device].callers; }
  // By explicit call of that input; of several that moved nothing the last one.
  const std::vector<Caller>& move_callers(size_t device) const {
    return gpus_[device].move_callers;
  }
  std::string_view text(tables::StringId id) const { return trace_.string(id); }
  uint32_t pid(uint32_t process) const { return trace_.processes()[process].pid; }
  const Caller& managed_caller(uint32_t site) const { return managed_callers_[site]; }
  // By sample of that input: readings just before it with the same figures, which were not written.
  const std::vector<uint32_t>& repeats(size_t device) const { return gpus_[device].repeats; }
  // Whether NVML ever listed it there.
  bool HasFigure(trace::ProcessId process, trace::DeviceId device) const {
    return gpus_[static_cast<size_t>(device.value)].has_figure[process.value];
  }

  // ---- what an event moved, between BeginEvent and EndEvent. Blocks have none of their own.
  void BeginEvent(const trace::Event& event) { event_ = &event; }
  void EndEvent() {
    if (!moves_.empty() || !array_moves_.empty() || !called_.empty()) [[unlikely]]
      Flush();
  }
  // An explicit call on that device, whether it moves anything or not.
  void NoteCall(trace::DeviceId device) {
    if (IsGpu(device))
      called_.push_back(device);
  }
  void Move(trace::ProcessId process, trace::DeviceId device, int64_t bytes) {
    if (bytes != 0 && IsGpu(device))
      AddMove({process.value, device, bytes, price::kNone});
  }
  // No call says what an array takes: it gets a number, and moves by an estimate.
  uint32_t NewArray(trace::DeviceId device) {
    return gpus_[static_cast<size_t>(device.value)].arrays++;
  }
  void MoveArray(trace::ProcessId process, trace::DeviceId device, int64_t bytes, uint32_t array) {
    array_moves_.push_back({process.value, device, bytes, array});
  }

  // Managed memory may be touched on every GPU. It gets a number.
  uint32_t NewManaged(trace::ProcessId process, int64_t bytes, const Caller& caller);
  void MoveManaged(uint32_t number, bool frees);

  // ---- what says of itself what it is
  void On(const trace::EventContext& at, const trace::Implicit& e);
  void On(const trace::EventContext& at, const trace::ContextCreate& e);
  void On(const trace::EventContext& at, const trace::ContextDestroy& e);
  void On(const trace::EventContext& at, const trace::Reading& e);
  void On(const trace::EventContext& at, const trace::DeviceSample& e);
  void On(const trace::EventContext& at, const trace::ProcessSample& e);
  void On(const trace::EventContext& at, const trace::Checkpoint& e);
  void On(const trace::EventContext& at, const trace::Teardown& e);
  void NoteShare(const trace::EventContext& at);
  void NoteLateStart(const trace::EventContext& at);
  // Its memory goes in [begin_ns, end_ns].
  void NoteProcessEnd(const trace::EventContext& at, int64_t begin_ns, int64_t end_ns);

  void Finish();

 private:
  struct Moved {
    uint32_t process;
    trace::DeviceId device;
    int64_t bytes;
    uint32_t array;
  };
  struct Gpu {
    bool is_gpu = false;
    price::DeviceInput input;
    std::vector<Caller> callers;
    std::vector<Caller> move_callers;
    std::vector<uint32_t> repeats;
    std::vector<bool> has_figure;  // by process
    uint32_t arrays = 0;
    // By process: what blocks moved that are in no known segment, since the last of anything else.
    std::vector<std::pair<uint32_t, int64_t>> block_bytes;
    int64_t block_ns = 0;  // of the last of them
    Caller block_caller;
    bool idle_last = false;  // the last thing was a call that moved nothing
  };

  void AddMove(const Moved& moved);
  void Flush();
  void Flush(const Moved& moved);
  void FlushBlocks(Gpu& gpu);
  void NoteIdle(Gpu& gpu);
  // Before anything but a call that moves nothing.
  Gpu& Next(trace::DeviceId device) {
    Gpu& gpu = gpus_[static_cast<size_t>(device.value)];
    FlushBlocks(gpu);
    gpu.idle_last = false;
    return gpu;
  }
  template <class Visitor>
  void ForEachGpu(Visitor visit) {
    for (size_t i = 0; i < gpus_.size(); ++i) {
      if (gpus_[i].is_gpu)
        visit(Next(trace::DeviceId{static_cast<int16_t>(i)}));
    }
  }
  static void AddMove(Gpu& gpu, const price::Move& move, const Caller& caller);
  static price::When WhenOf(const trace::EventContext& at);
  void AddCall(const trace::EventContext& at,
               trace::DeviceId device,
               const Caller& caller,
               price::ImplicitCall call);

  const trace::Trace& trace_;
  std::vector<Gpu> gpus_;                                      // by device
  std::map<std::array<uint32_t, 6>, uint32_t> managed_sites_;  // by process and caller
  std::vector<Caller> managed_callers_;                        // by site
  uint32_t managed_count_ = 0;
  const trace::Event* event_ = nullptr;
  // By the event under way.
  std::vector<Moved> moves_;
  std::vector<Moved> array_moves_;
  std::vector<trace::DeviceId> called_;
};

}  // namespace vramscope::resolve
