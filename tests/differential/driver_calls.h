// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fake_cuda/truth.h"
#include "probe/hooks/cuda/hook_table.h"

// The driver's entry points that random programs call, found as real programs find them.
namespace differential {

using namespace vramscope::probe::cuda;

// One line an entry point. HOOK: cuda_hooks.def says its prototype; OTHER: this line does.
#define DIFFERENTIAL_CALLS(HOOK, OTHER)                                            \
  HOOK(cuInit)                                                                     \
  HOOK(cuMemAlloc)                                                                 \
  HOOK(cuMemAlloc_v2)                                                              \
  HOOK(cuMemAllocPitch_v2)                                                         \
  HOOK(cuMemAllocManaged)                                                          \
  HOOK(cuMemFree)                                                                  \
  HOOK(cuMemFree_v2)                                                               \
  HOOK(cuMemAllocHost_v2)                                                          \
  HOOK(cuMemHostAlloc)                                                             \
  HOOK(cuMemFreeHost)                                                              \
  HOOK(cuMemHostRegister_v2)                                                       \
  HOOK(cuMemHostUnregister)                                                        \
  HOOK(cuMemPrefetchAsync_v2)                                                      \
  HOOK(cuArrayCreate_v2)                                                           \
  HOOK(cuArray3DCreate_v2)                                                         \
  HOOK(cuArrayDestroy)                                                             \
  HOOK(cuMemAllocAsync)                                                            \
  HOOK(cuMemAllocAsync_ptsz)                                                       \
  HOOK(cuMemAllocFromPoolAsync)                                                    \
  HOOK(cuMemFreeAsync)                                                             \
  HOOK(cuMemFreeAsync_ptsz)                                                        \
  HOOK(cuMemPoolCreate)                                                            \
  HOOK(cuMemPoolDestroy)                                                           \
  HOOK(cuMemPoolTrimTo)                                                            \
  HOOK(cuCtxSynchronize)                                                           \
  HOOK(cuStreamSynchronize)                                                        \
  HOOK(cuEventSynchronize)                                                         \
  HOOK(cuMemCreate)                                                                \
  HOOK(cuMemRelease)                                                               \
  HOOK(cuMemRetainAllocationHandle)                                                \
  HOOK(cuMemMap)                                                                   \
  HOOK(cuMemUnmap)                                                                 \
  HOOK(cuMemAddressReserve)                                                        \
  HOOK(cuMemAddressFree)                                                           \
  HOOK(cuCtxCreate_v2)                                                             \
  HOOK(cuCtxCreate_v4)                                                             \
  HOOK(cuCtxDestroy_v2)                                                            \
  HOOK(cuDevicePrimaryCtxRetain)                                                   \
  HOOK(cuDevicePrimaryCtxRelease_v2)                                               \
  HOOK(cuDevicePrimaryCtxReset_v2)                                                 \
  HOOK(cuCtxSetCurrent)                                                            \
  HOOK(cuCtxPushCurrent_v2)                                                        \
  HOOK(cuCtxSetLimit)                                                              \
  HOOK(cuModuleLoadData)                                                           \
  HOOK(cuModuleUnload)                                                             \
  HOOK(cuModuleGetFunction)                                                        \
  HOOK(cuLibraryLoadData)                                                          \
  HOOK(cuLibraryUnload)                                                            \
  HOOK(cuLibraryGetKernel)                                                         \
  HOOK(cuKernelGetFunction)                                                        \
  HOOK(cuLaunchKernel)                                                             \
  HOOK(cuStreamCreate)                                                             \
  HOOK(cuStreamCreateWithPriority)                                                 \
  HOOK(cuStreamDestroy_v2)                                                         \
  HOOK(cuStreamBeginCapture_v2)                                                    \
  HOOK(cuStreamEndCapture)                                                         \
  HOOK(cuGraphInstantiateWithFlags)                                                \
  HOOK(cuGraphLaunch)                                                              \
  HOOK(cuGraphExecDestroy)                                                         \
  HOOK(cuDeviceGraphMemTrim)                                                       \
  OTHER(cuCtxGetCurrent, CUresult(CUcontext*))                                     \
  OTHER(cuDevicePrimaryCtxGetState, CUresult(CUdevice, unsigned*, int*))           \
  OTHER(cuCtxPopCurrent_v2, CUresult(CUcontext*))                                  \
  OTHER(cuMemPoolSetAttribute, CUresult(CUmemoryPool, CUmemPool_attribute, void*)) \
  OTHER(cuDeviceGetDefaultMemPool, CUresult(CUmemoryPool*, CUdevice))              \
  OTHER(cuDeviceSetMemPool, CUresult(CUdevice, CUmemoryPool))                      \
  OTHER(cuEventCreate, CUresult(CUevent*, unsigned int))                           \
  OTHER(cuEventDestroy_v2, CUresult(CUevent))                                      \
  OTHER(cuGraphDestroy, CUresult(CUgraph))

template <class Function>
struct Call {
  const char* name;
  Function* function = nullptr;
};

struct Calls {
#define DIFFERENTIAL_HOOK(name) Call<HookTraits<HookId::name>::Function> name{#name};
#define DIFFERENTIAL_OTHER(name, ...) Call<__VA_ARGS__> name{#name};
  DIFFERENTIAL_CALLS(DIFFERENTIAL_HOOK, DIFFERENTIAL_OTHER)
#undef DIFFERENTIAL_HOOK
#undef DIFFERENTIAL_OTHER
  // Functions that only the fake driver has.
  fake::TakeTruthFunction* take_truth = nullptr;
  fake::FailNextFunction* fail_next = nullptr;

  // By dlsym, or by the driver's own cuGetProcAddress.
  void Find(bool by_proc_address);
};

}  // namespace differential
