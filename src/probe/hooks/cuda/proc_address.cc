// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/hook_table.h"

// The driver decides which version a name, a version and flags stand for; only the pointer that it
// returned is looked at. Names that are unknown, empty, or asked for to see whether they exist come
// through as they are.
namespace vramscope::probe::cuda {
namespace {

void PutWrapper(void** function) {
  if (function == nullptr)
    return;
  if (void* const wrapper = WrapperOf(*function))
    *function = wrapper;
}

template <HookId kId, class... Args>
CUresult GetProcAddress(const char* symbol, void** function, Args... args) {
  HookCall<kId> call;
  const CUresult result = call(symbol, function, args...);
  if (result == kSuccess)
    PutWrapper(function);
  return result;
}

}  // namespace
}  // namespace vramscope::probe::cuda

#define VRAMSCOPE_CUDA_IS_PROC_ADDRESS 1
#include "probe/hooks/cuda/define_wrappers.h"
