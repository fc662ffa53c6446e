// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/hook_table.h"

namespace vramscope::probe::cuda {

#define VRAMSCOPE_CUDA_HOOK(name, prototype)           \
  extern "C" __attribute__((visibility("hidden")))     \
  HookTraits<HookId::name>::Function vramscope_##name; \
  extern "C" __attribute__((visibility("hidden"))) void* vramscope_next_##name;
#include "probe/hooks/cuda/cuda_hooks.def"

const HookEntry kHooks[kHookCount] = {
#define VRAMSCOPE_CUDA_HOOK(name, prototype) \
  {#name, reinterpret_cast<void*>(&vramscope_##name), &vramscope_next_##name},
#include "probe/hooks/cuda/cuda_hooks.def"
};

const char* const kCallNames[kCallCount] = {
#define VRAMSCOPE_CUDA_CALL(name, prototype) #name,
#include "probe/hooks/cuda/cuda_hooks.def"
};

constinit std::atomic<void*> g_real_hooks[kHookCount]{};
constinit std::atomic<void*> g_real_calls[kCallCount]{};

}  // namespace vramscope::probe::cuda
