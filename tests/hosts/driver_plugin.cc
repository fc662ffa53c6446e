// SPDX-License-Identifier: Apache-2.0
// A library linked with libcuda.so.1, opened by driver_deepbind.
#include "probe/hooks/cuda/hook_table.h"

extern "C" vramscope::probe::cuda::HookTraits<
    vramscope::probe::cuda::HookId::cuMemAlloc_v2>::Function cuMemAlloc_v2;

extern "C" int PluginAllocate(unsigned long long* address, size_t size) {
  return cuMemAlloc_v2(address, size);
}
