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

// Collects the pricer's input for each GPU, in event order, and the callers of the calls that it
// prices.
class PriceInputs {
 public:
  struct Caller {
    tables::StringId api;
    tables::StackId stack;
    tables::StackId native;
    tables::ThreadId thread;
    Owner owner;  // for managed memory
  };

  explicit PriceInputs(const trace::Trace& trace);

  bool IsGpu(trace::DeviceId device) const {
    return device.value >= 0 && static_cast<size_t>(device.value) < gpus_.size() &&
           gpus_[static_cast<size_t>(device.value)].is_gpu;
  }
  // By device; empty for other devices than GPUs.
  const price::DeviceInput& input(size_t device) const { return gpus_[device].input; }
  // By implicit call of that input.
  const std::vector<Caller>& callers(size_t device) const { return gpus_[device].callers; }
  // By explicit call of that input. Consecutive calls that moved nothing are one entry, with the
  // last caller.
  const std::vector<Caller>& move_callers(size_t device) const {
    return gpus_[device].move_callers;
  }
  std::string_view text(tables::StringId id) const { return trace_.string(id); }
  uint32_t pid(uint32_t process) const { return trace_.processes()[process].pid; }
  const Caller& managed_caller(uint32_t site) const { return managed_callers_[site]; }
  // By sample of that input: how many equal samples just before it were not recorded.
  const std::vector<uint32_t>& repeats(size_t device) const { return gpus_[device].repeats; }
  // Whether NVML ever listed the process on the device.
  bool HasFigure(trace::ProcessId process, trace::DeviceId device) const {
    return gpus_[static_cast<size_t>(device.value)].has_figure[process.value];
  }

  // ---- moves of an event, between BeginEvent and EndEvent. Blocks do not use these.
  void BeginEvent(const trace::Event& event) { event_ = &event; }
  void EndEvent() {
    if (!moves_.empty() || !array_moves_.empty() || !called_.empty()) [[unlikely]]
      Flush();
  }
  // An explicit call on that device, even if it moves nothing.
  void NoteCall(trace::DeviceId device) {
    if (IsGpu(device))
      called_.push_back(device);
  }
  void Move(trace::ProcessId process, trace::DeviceId device, int64_t bytes) {
    if (bytes != 0 && IsGpu(device))
      AddMove({process.value, device, bytes, price::kNone});
  }
  // No call reports an array's size. The array gets a number and moves by an estimate.
  uint32_t NewArray(trace::DeviceId device) {
    return gpus_[static_cast<size_t>(device.value)].arrays++;
  }
  void MoveArray(trace::ProcessId process, trace::DeviceId device, int64_t bytes, uint32_t array) {
    array_moves_.push_back({process.value, device, bytes, array});
  }

  // Managed memory may be touched on any GPU. It gets a number.
  uint32_t NewManaged(trace::ProcessId process, int64_t bytes, const Caller& caller);
  void MoveManaged(uint32_t number, bool frees);

  // ---- inputs that are copied as they are
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
  // Its memory is freed at some time in [begin_ns, end_ns].
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
    // By process: bytes moved by blocks in no known segment, since the last other move.
    std::vector<std::pair<uint32_t, int64_t>> block_bytes;
    int64_t block_ns = 0;  // time of the last such block
    Caller block_caller;
    bool idle_last = false;  // the last entry is a call that moved nothing
  };

  void AddMove(const Moved& moved);
  void Flush();
  void Flush(const Moved& moved);
  void FlushBlocks(Gpu& gpu);
  void NoteIdle(Gpu& gpu);
  // Call before adding anything but a call that moves nothing.
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
  // For the current event.
  std::vector<Moved> moves_;
  std::vector<Moved> array_moves_;
  std::vector<trace::DeviceId> called_;
};

}  // namespace vramscope::resolve
