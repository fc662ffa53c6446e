// SPDX-License-Identifier: Apache-2.0
// A library linked with libcuda.so.1, opened by driver_deepbind and driver_route.
#include "probe/hooks/cuda/hook_table.h"

using namespace vramscope::probe::cuda;

extern "C" {
HookTraits<HookId::cuInit>::Function cuInit;
HookTraits<HookId::cuDevicePrimaryCtxRetain>::Function cuDevicePrimaryCtxRetain;
HookTraits<HookId::cuCtxSetCurrent>::Function cuCtxSetCurrent;
HookTraits<HookId::cuMemAlloc_v2>::Function cuMemAlloc_v2;
}

extern "C" int PluginBegin() {
  CUcontext context = nullptr;
  if (const int result = cuInit(0); result != kSuccess)
    return result;
  if (const int result = cuDevicePrimaryCtxRetain(&context, 0); result != kSuccess)
    return result;
  return cuCtxSetCurrent(context);
}

extern "C" int PluginAllocate(unsigned long long* address, size_t size) {
  return cuMemAlloc_v2(address, size);
}
