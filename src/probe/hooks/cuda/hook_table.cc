// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/hook_table.h"

namespace vramscope::probe::cuda {

#define VRAMSCOPE_CUDA_HOOK(name, rule, prototype) {#name, &vramscope_link_##name},
const HookEntry kHooks[kHookCount] = {
#include "probe/hooks/cuda/cuda_hooks.def"
};

const char* const kCallNames[kCallCount] = {
#define VRAMSCOPE_CUDA_CALL(name, prototype) #name,
#include "probe/hooks/cuda/cuda_hooks.def"
};

constinit std::atomic<void*> g_real_hooks[kHookCount]{};
constinit std::atomic<void*> g_real_calls[kCallCount]{};

}  // namespace vramscope::probe::cuda
