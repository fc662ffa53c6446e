// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/managed.h"
#include "probe/hooks/cuda/pools.h"

// Calls that wait for the device, or say that it is done: pools give memory back in them, and
// kernels have touched what they touch. While no pool has anything to give back, and the process no
// managed memory, a call costs four loads and a time stamp.
namespace vramscope::probe::cuda {
namespace {

bool MayChange() {
  return MayPoolsShrink() || MayPagesMove();
}

void Read() {
  ReadPoolsAfterSynchronisation();
  if (MayPagesMove())
    ReadPagesAfterSynchronisation();
}

template <HookId kId, class... Args>
VRAMSCOPE_NOINLINE CUresult CallAndRead(Args... args) {
  HookCall<kId> call;
  const ShrinkingCall shrinking;
  const CUresult result = call(args...);
  if (call.watching() && result == kSuccess)
    Read();
  return result;
}

// Another thread's call gave them something to give back, or made managed memory, while this one
// was under way.
VRAMSCOPE_NOINLINE void ReadLate(uint64_t began) {
  if (t_cuda_depth != 0 || !IsRecording())
    return;
  t_cuda_call_begin = began;
  Read();
}

template <HookId kId, class... Args>
VRAMSCOPE_ALWAYS_INLINE CUresult Synchronise(Args... args) {
  auto* const real = g_real_hooks[static_cast<size_t>(kId)].load(std::memory_order_relaxed);
  if (VRAMSCOPE_UNLIKELY(real == nullptr || MayChange()))
    return CallAndRead<kId>(args...);
  const uint64_t began = Now();
  const CUresult result = reinterpret_cast<typename HookTraits<kId>::Function*>(real)(args...);
  if (VRAMSCOPE_UNLIKELY(MayChange()) && result == kSuccess)
    ReadLate(began);
  return result;
}

}  // namespace

VRAMSCOPE_CUDA_WRAPPER(cuCtxSynchronize)() {
  return Synchronise<HookId::cuCtxSynchronize>();
}

VRAMSCOPE_CUDA_WRAPPER(cuCtxSynchronize_v2)(CUcontext context) {
  return Synchronise<HookId::cuCtxSynchronize_v2>(context);
}

VRAMSCOPE_CUDA_WRAPPER(cuStreamSynchronize)(CUstream stream) {
  return Synchronise<HookId::cuStreamSynchronize>(stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuStreamSynchronize_ptsz)(CUstream stream) {
  return Synchronise<HookId::cuStreamSynchronize_ptsz>(stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuEventSynchronize)(CUevent event) {
  return Synchronise<HookId::cuEventSynchronize>(event);
}

VRAMSCOPE_CUDA_WRAPPER(cuStreamQuery)(CUstream stream) {
  return Synchronise<HookId::cuStreamQuery>(stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuStreamQuery_ptsz)(CUstream stream) {
  return Synchronise<HookId::cuStreamQuery_ptsz>(stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuEventQuery)(CUevent event) {
  return Synchronise<HookId::cuEventQuery>(event);
}

// Copies that return when they are done.
#define VRAMSCOPE_COPY(name, target_type, source_type, size_type) \
  VRAMSCOPE_CUDA_WRAPPER(name)                                    \
  (target_type target, source_type source, size_type bytes) {     \
    return Synchronise<HookId::name>(target, source, bytes);      \
  }
VRAMSCOPE_COPY(cuMemcpy, CUdeviceptr, CUdeviceptr, size_t)
VRAMSCOPE_COPY(cuMemcpy_ptds, CUdeviceptr, CUdeviceptr, size_t)
VRAMSCOPE_COPY(cuMemcpyHtoD, CUdeviceptr_v1, const void*, unsigned int)
VRAMSCOPE_COPY(cuMemcpyHtoD_v2, CUdeviceptr, const void*, size_t)
VRAMSCOPE_COPY(cuMemcpyHtoD_v2_ptds, CUdeviceptr, const void*, size_t)
VRAMSCOPE_COPY(cuMemcpyDtoH, void*, CUdeviceptr_v1, unsigned int)
VRAMSCOPE_COPY(cuMemcpyDtoH_v2, void*, CUdeviceptr, size_t)
VRAMSCOPE_COPY(cuMemcpyDtoH_v2_ptds, void*, CUdeviceptr, size_t)
#undef VRAMSCOPE_COPY

}  // namespace vramscope::probe::cuda
