// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "format/enums.h"
#include "trace/live/converter.h"

namespace vramscope::trace {

// What a first walk over a stream and the skim of a chunk have in common. Nobody looks at the
// events that they make: they ask which devices, stacks and texts there are, and a skim has to
// leave what a walk leaves. `Pass` has AddDevice(int64_t local) besides what a Converter asks for.
template <class Pass>
class FirstLook : public Converter<Pass> {
 public:
  using Converter<Pass>::On;

  DeviceId Device(int64_t local) {
    if (local != last_device_)
      pass().AddDevice(local);
    last_device_ = local;
    return kNoDevice;
  }
  ThreadId thread() const { return {}; }
  StringId scope() const { return {}; }
  ProcessId process() const { return kNoProcess; }
  ProcessId ProcessOf(uint64_t, int64_t) const { return kNoProcess; }

  // Nearly all records are one of these two.
  bool On(const format::BlockAlloc& r, Event*) {
    pass().Ns(r.time);
    Device(r.device);
    pass().Python(r.stack);
    pass().Native(r.native);
    return true;
  }
  bool On(const format::BlockFree& r, Event*) {
    pass().Ns(r.time);
    Device(r.device);
    return true;
  }
  bool On(const format::Alloc& r, Event* event) {
    // It stands in for the device that it names, and is the host's.
    if (r.kind == static_cast<uint64_t>(format::MemoryKind::kOverflow))
      Device(format::kHostDevice);
    return Converter<Pass>::On(r, event);
  }
  bool On(const format::PastOrigin& r, Event*) {
    pass().Python(r.forward);
    return false;
  }
  bool On(const format::ScopeIs&, Event*) { return false; }

 protected:
  // What was seen before tells nothing of what comes.
  void ForgetDevice() { last_device_ = format::kNoDevice; }

 private:
  Pass& pass() { return static_cast<Pass&>(*this); }

  int64_t last_device_ = format::kNoDevice;
};

}  // namespace vramscope::trace
