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

}  // namespace

VRAMSCOPE_CUDA_WRAPPER(cuGetProcAddress)
(const char* symbol, void** function, int version, cuuint64_t flags) {
  HookCall<HookId::cuGetProcAddress> call;
  const CUresult result = call(symbol, function, version, flags);
  if (result == kSuccess)
    PutWrapper(function);
  return result;
}

VRAMSCOPE_CUDA_WRAPPER(cuGetProcAddress_v2)
(const char* symbol,
 void** function,
 int version,
 cuuint64_t flags,
 CUdriverProcAddressQueryResult* status) {
  HookCall<HookId::cuGetProcAddress_v2> call;
  const CUresult result = call(symbol, function, version, flags, status);
  if (result == kSuccess)
    PutWrapper(function);
  return result;
}

}  // namespace vramscope::probe::cuda
