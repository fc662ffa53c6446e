// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/compiler.h"
#include "probe/hooks/cuda/cuda_types.h"

// The real entry points, by name, as expansions of cuda_hooks.def. Filled in once, when the driver
// is attached; read by every wrapper with one relaxed load.
namespace vramscope::probe::cuda {

enum class HookId : uint16_t {
#define VRAMSCOPE_CUDA_HOOK(name, prototype) name,
#include "probe/hooks/cuda/cuda_hooks.def"
  kCount
};

enum class CallId : uint16_t {
#define VRAMSCOPE_CUDA_CALL(name, prototype) name,
#include "probe/hooks/cuda/cuda_hooks.def"
  kCount
};

inline constexpr size_t kHookCount = static_cast<size_t>(HookId::kCount);
inline constexpr size_t kCallCount = static_cast<size_t>(CallId::kCount);

template <HookId>
struct HookTraits;
#define VRAMSCOPE_CUDA_HOOK(name, prototype) \
  template <>                                \
  struct HookTraits<HookId::name> {          \
    using Function = prototype;              \
  };
#include "probe/hooks/cuda/cuda_hooks.def"

template <CallId>
struct CallTraits;
#define VRAMSCOPE_CUDA_CALL(name, prototype) \
  template <>                                \
  struct CallTraits<CallId::name> {          \
    using Function = prototype;              \
  };
#include "probe/hooks/cuda/cuda_hooks.def"

struct HookEntry {
  const char* name;
  void* wrapper;
};
extern const HookEntry kHooks[kHookCount];
extern const char* const kCallNames[kCallCount];

extern std::atomic<void*> g_real_hooks[kHookCount];
extern std::atomic<void*> g_real_calls[kCallCount];

inline const char* HookName(HookId id) {
  return kHooks[static_cast<size_t>(id)].name;
}

// Finds a driver that was loaded without us (as a DT_NEEDED library) and attaches to it. The real
// entry, or nullptr when there is no driver or it has no such entry.
VRAMSCOPE_NOINLINE void* ResolveHook(HookId id);

template <HookId kId>
VRAMSCOPE_ALWAYS_INLINE typename HookTraits<kId>::Function* Real() {
  void* real = g_real_hooks[static_cast<size_t>(kId)].load(std::memory_order_relaxed);
  if (VRAMSCOPE_UNLIKELY(real == nullptr))
    real = ResolveHook(kId);
  return reinterpret_cast<typename HookTraits<kId>::Function*>(real);
}

// An entry that the probe asks itself. nullptr when this driver does not have it.
template <CallId kId>
VRAMSCOPE_ALWAYS_INLINE typename CallTraits<kId>::Function* DriverCall() {
  return reinterpret_cast<typename CallTraits<kId>::Function*>(
      g_real_calls[static_cast<size_t>(kId)].load(std::memory_order_relaxed));
}

// The wrapper of the entry whose real address this is, or nullptr.
void* WrapperOf(void* real);

}  // namespace vramscope::probe::cuda

// Opens the definition of a wrapper: exported under the entry's own name for programs that link
// with libcuda, and under a hidden one for the table, whose pointers nobody can interpose. The
// declaration makes the compiler compare the definition with cuda_hooks.def.
#define VRAMSCOPE_CUDA_WRAPPER(name)                             \
  VRAMSCOPE_EXPORT HookTraits<HookId::name>::Function name;      \
  extern "C" __attribute__((visibility("hidden"), alias(#name))) \
  HookTraits<HookId::name>::Function vramscope_##name;           \
  VRAMSCOPE_EXPORT CUresult name
