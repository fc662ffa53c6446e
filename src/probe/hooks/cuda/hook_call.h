// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/compiler.h"
#include "probe/hooks/cuda/hook_table.h"
#include "probe/session/session.h"

namespace vramscope::probe::cuda {

// Stamps around the real call: a free counts from `begin`, an allocation from `end`.
struct CallTimes {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// How many wrappers this thread is inside. A call from within the driver, or from a tool that the
// driver calls back, goes straight through: its outer call is the one that is recorded.
extern constinit VRAMSCOPE_TLS uint32_t t_cuda_depth;
// Where the outermost of them is on the stack. A signal handler that jumps out of a driver call, or
// a thread that is cancelled in one, leaves the depth too high; the next call is then at a higher
// address.
extern constinit VRAMSCOPE_TLS uintptr_t t_cuda_outermost;
// When the real call began that this thread made last: what is read after it may have changed
// since.
extern constinit VRAMSCOPE_TLS uint64_t t_cuda_call_begin;

inline bool IsRecording() {
  return !SessionIsOff();
}

// One call of a wrapped entry point:
//
//   HookCall<HookId::cuMemFree_v2> call;
//   const CUresult result = call(address);        the real entry, once, whatever our state
//   if (call.watching()) ... call.times() ...
//   return result;
template <HookId kId>
class HookCall {
 public:
  VRAMSCOPE_ALWAYS_INLINE HookCall() : watching_(Enter(reinterpret_cast<uintptr_t>(this))) {}
  VRAMSCOPE_ALWAYS_INLINE ~HookCall() { --t_cuda_depth; }
  HookCall(const HookCall&) = delete;
  HookCall& operator=(const HookCall&) = delete;

  template <class... Args>
  VRAMSCOPE_ALWAYS_INLINE CUresult operator()(Args... args) {
    auto* const real = Real<kId>();
    if (VRAMSCOPE_UNLIKELY(real == nullptr))
      return kId == HookId::cuInit ? kNoDeviceError : kNotFoundError;
    times_.begin = t_cuda_call_begin = Now();
    const CUresult result = real(args...);
    times_.end = Now();
    return result;
  }

  bool watching() const { return watching_; }
  const CallTimes& times() const { return times_; }

 private:
  VRAMSCOPE_ALWAYS_INLINE static bool Enter(uintptr_t here) {
    if (VRAMSCOPE_UNLIKELY(t_cuda_depth != 0) && here < t_cuda_outermost) {
      ++t_cuda_depth;
      return false;
    }
    t_cuda_depth = 1;
    t_cuda_outermost = here;
    return IsRecording();
  }

  bool watching_;
  CallTimes times_;
};

template <class First, class... Rest>
constexpr auto LastOf(First first, Rest... rest) {
  if constexpr (sizeof...(rest) == 0)
    return first;
  else
    return LastOf(rest...);
}

}  // namespace vramscope::probe::cuda
