// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/compiler.h"
#include "probe/hooks/cuda/cuda_types.h"

// The real entry points, by name, as expansions of cuda_hooks.def. Filled in once, when the driver
// is attached; read by every wrapper with one relaxed load.
namespace vramscope::probe {
class Stream;
}

namespace vramscope::probe::cuda {

enum class HookId : uint16_t {
#define VRAMSCOPE_CUDA_HOOK(name, rule, prototype) name,
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
#define VRAMSCOPE_CUDA_HOOK(name, rule, prototype)   \
  template <>                                        \
  struct HookTraits<HookId::name> {                  \
    using Function = prototype;                      \
    static constexpr std::string_view kName = #name; \
  };
#include "probe/hooks/cuda/cuda_hooks.def"

// Whether the entry point takes the default stream for the calling thread's own.
template <HookId kId>
inline constexpr bool kIsPerThread = HookTraits<kId>::kName.ends_with("_ptsz");

template <CallId>
struct CallTraits;
#define VRAMSCOPE_CUDA_CALL(name, prototype) \
  template <>                                \
  struct CallTraits<CallId::name> {          \
    using Function = prototype;              \
  };
#include "probe/hooks/cuda/cuda_hooks.def"

// Facts about a wrapper from its definition, see define_wrappers.h.
struct HookLink {
  void* wrapper;
  void* target;  // where the exported name leads: to the wrapper, or to another tool
};

extern "C" {
#define VRAMSCOPE_CUDA_HOOK(name, rule, prototype) \
  __attribute__((visibility("hidden"))) extern HookLink vramscope_link_##name;
#include "probe/hooks/cuda/cuda_hooks.def"
}

struct HookEntry {
  const char* name;
  HookLink* link;
};
extern const HookEntry kHooks[kHookCount];
extern const char* const kCallNames[kCallCount];

extern std::atomic<void*> g_real_hooks[kHookCount];
extern std::atomic<void*> g_real_calls[kCallCount];

inline const char* HookName(HookId id) {
  return kHooks[static_cast<size_t>(id)].name;
}

// Finds a driver that was loaded without us (as a DT_NEEDED library) and attaches to it. The real
// entry, or nullptr if the driver is missing or has no such entry.
VRAMSCOPE_NOINLINE void* ResolveHook(HookId id);

template <HookId kId>
VRAMSCOPE_ALWAYS_INLINE typename HookTraits<kId>::Function* Real() {
  void* real = g_real_hooks[static_cast<size_t>(kId)].load(std::memory_order_relaxed);
  if (VRAMSCOPE_UNLIKELY(real == nullptr))
    real = ResolveHook(kId);
  return reinterpret_cast<typename HookTraits<kId>::Function*>(real);
}

// The wrapper where no other one takes its place.
template <HookId kId>
typename HookTraits<kId>::Function* UsualWrapper() {
  return reinterpret_cast<typename HookTraits<kId>::Function*>(
      kHooks[static_cast<size_t>(kId)].link->wrapper);
}

// An entry that the probe asks itself. nullptr when this driver does not have it.
template <CallId kId>
VRAMSCOPE_ALWAYS_INLINE typename CallTraits<kId>::Function* DriverCall() {
  return reinterpret_cast<typename CallTraits<kId>::Function*>(
      g_real_calls[static_cast<size_t>(kId)].load(std::memory_order_relaxed));
}

// Writes which driver this process uses and how the wrappers came before it, for `vramscope info`.
void DescribeAttachment(Stream& stream);

}  // namespace vramscope::probe::cuda
