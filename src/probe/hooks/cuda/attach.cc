// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstring>

#include "probe/hooks/cuda/context.h"
#include "probe/hooks/cuda/cuda.h"
#include "probe/hooks/cuda/hook_table.h"
#include "probe/hooks/cuda/pools.h"
#include "probe/hooks/cuda/reading.h"
#include "probe/hooks/cuda/symbol_patch.h"
#include "probe/platform/dynamic.h"
#include "probe/session/intern_table.h"

// Finding the real driver and putting the wrappers in, once a process.
namespace vramscope::probe {
namespace cuda {
namespace {

enum class AttachState : int {
  kNone,       // no driver seen
  kAttaching,  // one thread writes the tables: microseconds, no lock and no system call that blocks
  kAttached,
  kFailed,  // this driver's symbols cannot be found or changed: it is left alone
};

constinit std::atomic<AttachState> g_state{AttachState::kNone};

// Real address -> wrapper, for cuGetProcAddress. Written before kAttached, then constant.
constexpr size_t kWrapperSlots = 1024;
static_assert(kHookCount * 2 < kWrapperSlots);
struct WrapperSlot {
  void* real;
  void* wrapper;
};
constinit WrapperSlot g_wrappers[kWrapperSlots]{};

size_t SlotOf(const void* real) {
  return static_cast<size_t>(HashMix(0, reinterpret_cast<uintptr_t>(real)) >> 17);
}

// Two names may share one function: the first one's wrapper stays.
void RememberWrapper(void* real, void* wrapper) {
  for (size_t i = SlotOf(real);; ++i) {
    WrapperSlot& slot = g_wrappers[i & (kWrapperSlots - 1)];
    if (slot.real == real)
      return;
    if (slot.real == nullptr) {
      slot = {real, wrapper};
      return;
    }
  }
}

bool FillTables(const SymbolTable& table) {
  ElfW(Sym) * found[kHookCount] = {};
  ElfW(Sym)* first = nullptr;
  ElfW(Sym)* last = nullptr;
  for (size_t i = 0; i < kCallCount; ++i) {
    if (const ElfW(Sym)* symbol = table.FindFunction(kCallNames[i]))
      g_real_calls[i].store(table.AddressOf(*symbol), std::memory_order_relaxed);
  }
  for (size_t i = 0; i < kHookCount; ++i) {
    ElfW(Sym)* const symbol = table.FindFunction(kHooks[i].name);
    if (symbol == nullptr)
      continue;
    found[i] = symbol;
    first = first == nullptr || symbol < first ? symbol : first;
    last = last == nullptr || symbol > last ? symbol : last;
    void* const real = table.AddressOf(*symbol);
    RememberWrapper(real, kHooks[i].wrapper);
    g_real_hooks[i].store(real, std::memory_order_release);
  }
  if (first == nullptr || !table.Unprotect(first, last))
    return false;
  for (size_t i = 0; i < kHookCount; ++i) {
    if (found[i] != nullptr)
      table.Redirect(found[i], kHooks[i].wrapper);
  }
  table.Protect(first, last);
  return true;
}

void ForkedChild() {
  ForgetContexts();
  ForgetPools();
  ForgetReadings();
}

// Takes no lock of the loader between kAttaching and its end, so that a thread that waits here
// while it holds the loader's lock cannot be waited for.
void Attach(void* library) {
  const void* const entry = RealDlsym(library, "cuInit");
  SymbolTable table;
  if (entry == nullptr || !SymbolTable::OfAddress(entry, &table))
    return;
  AttachState state = AttachState::kNone;
  if (g_state.compare_exchange_strong(state, AttachState::kAttaching, std::memory_order_acq_rel)) {
    const bool ok = FillTables(table);
    g_state.store(ok ? AttachState::kAttached : AttachState::kFailed, std::memory_order_release);
    pthread_atfork(nullptr, nullptr, ForkedChild);
    return;
  }
  constexpr int kMaxTurns = 10000;
  for (int turn = 0; turn < kMaxTurns && state == AttachState::kAttaching; ++turn) {
    sched_yield();
    state = g_state.load(std::memory_order_acquire);
  }
}

bool IsDriver(const char* file) {
  constexpr char kPrefix[] = "libcuda.so";
  const char* const slash = std::strrchr(file, '/');
  return std::strncmp(slash != nullptr ? slash + 1 : file, kPrefix, sizeof kPrefix - 1) == 0;
}

bool IsSettled() {
  const AttachState state = g_state.load(std::memory_order_acquire);
  return state == AttachState::kAttached || state == AttachState::kFailed;
}

}  // namespace

void* ResolveHook(HookId id) {
  if (!IsSettled()) {
    if (const char* path = FindLoadedLibrary("libcuda.so")) {
      if (void* library = RealDlopen(path, RTLD_LAZY | RTLD_NOLOAD))
        Attach(library);
    }
  }
  return g_real_hooks[static_cast<size_t>(id)].load(std::memory_order_acquire);
}

void* WrapperOf(void* real) {
  if (real == nullptr)
    return nullptr;
  for (size_t i = SlotOf(real);; ++i) {
    const WrapperSlot& slot = g_wrappers[i & (kWrapperSlots - 1)];
    if (slot.real == real)
      return slot.wrapper;
    if (slot.real == nullptr)
      return nullptr;
  }
}

}  // namespace cuda

void CudaObserveDlopen(const char* file, int mode) {
  if (file == nullptr || !cuda::IsDriver(file) || cuda::IsSettled())
    return;
  // Found as the probe finds it: a RUNPATH of the caller's own is not searched. Where only that
  // would lead to the driver, nothing is found here and the program goes on unrecorded.
  if (void* library = RealDlopen(file, mode))
    cuda::Attach(library);
}

bool CudaIsActive() {
  return cuda::g_state.load(std::memory_order_acquire) == cuda::AttachState::kAttached;
}

void CudaMarkReading() {
  if (CudaIsActive())
    cuda::TakeReading(cuda::CurrentPlace());
}

int32_t CudaDeviceOf(const void* address) {
  const uint64_t known = cuda::KnownDevices();
  if (known == 0)
    return format::kNoDevice;
  if ((known & (known - 1)) == 0)
    return __builtin_ctzll(known);
  int device = format::kNoDevice;
  auto* const ask = cuda::DriverCall<cuda::CallId::cuPointerGetAttribute>();
  if (ask != nullptr &&
      ask(&device, cuda::kPointerDevice, reinterpret_cast<uintptr_t>(address)) == cuda::kSuccess) {
    return device;
  }
  return cuda::CurrentPlace().device;
}

}  // namespace vramscope::probe
