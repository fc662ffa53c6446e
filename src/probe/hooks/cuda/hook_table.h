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
  void** next;  // what the exported name leads to in place of the wrapper
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

// Opens the definition of a wrapper. Its function has a hidden name, which nobody can interpose.
// The entry's own name is exported for programs that are linked with libcuda, and leads to the
// wrapper, or to another tool that stands behind us under that name: the tool then comes to the
// wrapper itself, as it would come to the driver. The declaration makes the compiler compare the
// definition with cuda_hooks.def.
#ifdef __x86_64__
#define VRAMSCOPE_CUDA_EXPORT(name)   \
  __asm__(                            \
      ".pushsection .bss\n"           \
      ".globl vramscope_next_" #name  \
      "\n"                            \
      ".hidden vramscope_next_" #name \
      "\n"                            \
      ".p2align 3\n"                  \
      "vramscope_next_" #name         \
      ": .zero 8\n"                   \
      ".popsection\n"                 \
      ".pushsection .text\n"          \
      ".globl " #name                 \
      "\n"                            \
      ".type " #name                  \
      ", @function\n"                 \
      ".p2align 4\n" #name            \
      ":\n"                           \
      ".cfi_startproc\n"              \
      "endbr64\n"                     \
      "mov vramscope_next_" #name     \
      "(%rip), %r11\n"                \
      "test %r11, %r11\n"             \
      "jz vramscope_" #name           \
      "\n"                            \
      "jmp *%r11\n"                   \
      ".cfi_endproc\n"                \
      ".size " #name ", .-" #name     \
      "\n"                            \
      ".popsection\n")
#else
#define VRAMSCOPE_CUDA_EXPORT(name)                                             \
  extern "C" __attribute__((visibility("hidden"))) void* vramscope_next_##name; \
  void* vramscope_next_##name = nullptr;                                        \
  VRAMSCOPE_EXPORT __attribute__((alias("vramscope_" #name)))                   \
  HookTraits<HookId::name>::Function name
#endif
#define VRAMSCOPE_CUDA_WRAPPER(name)                     \
  VRAMSCOPE_CUDA_EXPORT(name);                           \
  extern "C" __attribute__((visibility("hidden"), used)) \
  HookTraits<HookId::name>::Function vramscope_##name;   \
  extern "C" CUresult vramscope_##name
