// SPDX-License-Identifier: Apache-2.0
#include "probe/inject/late.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "base/compiler.h"
#include "format/enums.h"
#include "probe/hooks/c10/c10.h"
#include "probe/hooks/cuda/cuda.h"
#include "probe/hooks/cuda/runtime.h"
#include "probe/hooks/torch/torch.h"
#include "probe/platform/dynamic.h"
#include "probe/platform/got_patch.h"
#include "probe/session/scopes.h"
#include "probe/session/session.h"
#include "probe/session/stream.h"
#include "probe/stack/stacks.h"

extern "C" __attribute__((visibility("hidden"))) void* vramscope_dlopen(const char* file, int mode);

namespace vramscope::probe {
namespace {

constexpr size_t kMaxNameBytes = 1024;
constexpr char kCudaAllocator[] = "libc10_cuda";

struct Replacement {
  const char* symbol;
  const char* object;  // only in objects whose file name begins so; nullptr: in all
  void* function;
};

struct Plan {
  Replacement entries[kC10HookCount + kRuntimeHookCount + 1];
  size_t count = 0;

  void Add(const char* symbol, const char* object, void* function) {
    entries[count++] = {symbol, object, function};
  }
};

bool IsFile(const char* path, const char* prefix) {
  const char* const slash = std::strrchr(path, '/');
  return std::strncmp(slash != nullptr ? slash + 1 : path, prefix, std::strlen(prefix)) == 0;
}

void* Choose(const Import& import, void* data) {
  // One look at most of the hundred thousand names.
  const char first = import.symbol[0];
  if (first != '_' && first != 'c' && first != 'd')
    return nullptr;
  const auto* const plan = static_cast<const Plan*>(data);
  for (size_t i = 0; i < plan->count; ++i) {
    const Replacement& entry = plan->entries[i];
    if (std::strcmp(import.symbol, entry.symbol) != 0)
      continue;
    const bool wanted = entry.object == nullptr || IsFile(import.object, entry.object);
    return wanted ? entry.function : nullptr;
  }
  return nullptr;
}

std::atomic<uint64_t> g_began{0};

}  // namespace

void PatchLoadedObjects() {
  Plan plan;
  for (const C10Hook& hook : kC10Hooks) {
    // The hook must have something to call.
    if (FindInLoadedLibrary("libc10.so", hook.symbol) != nullptr)
      plan.Add(hook.symbol, nullptr, hook.function);
  }
  RuntimeHook runtime[kRuntimeHookCount];
  FindRuntimeHooks(&runtime);
  for (const RuntimeHook& hook : runtime) {
    if (hook.function != nullptr)
      plan.Add(hook.symbol, kCudaAllocator, reinterpret_cast<void*>(hook.function));
  }
#ifdef __x86_64__
  // Not where another tool stands in front of the C library's: it would be passed over.
  if (RealDlsym(RTLD_DEFAULT, "dlopen") == RealDlopenAddress())
    plan.Add("dlopen", nullptr, reinterpret_cast<void*>(vramscope_dlopen));
#endif
  PatchImports(Choose, &plan);
}

}  // namespace vramscope::probe

using namespace vramscope;
using namespace vramscope::probe;

// Begins a recording of this process alone.
VRAMSCOPE_EXPORT int vramscope_attach(const char* live_dir, const char* options) {
  if (const int error = SessionAttach(live_dir, options); error != 0)
    return error;
  CudaAttachLoaded();
  PatchLoadedObjects();
  PythonBeginAnew();
  TorchBeginAnew();
  return 0;
}

// Ends that recording; its directory can be finished then. Where Python runs, the caller holds the
// GIL, and calls the next one from within it too.
VRAMSCOPE_EXPORT void vramscope_detach() {
  SessionDetach();
  // The next one has a file of its own, which knows nothing of all this yet.
  TorchForget();
  CudaForget();
}

// Has the probe look at this Python and, where it is imported whole, at torch. A preloaded probe
// does so by itself, when it sees torch come.
VRAMSCOPE_EXPORT void vramscope_look_at_python(int has_torch) {
  if (SessionIsOff())
    return;
  constexpr char kTorch[] = "libtorch.so";
  PythonObserveDlopen(kTorch);
  TorchObserveDlopen(kTorch);
  if (has_torch != 0)
    TorchLook();
}

// What stood when recording began, all of it as of the call with kind kProcess, which comes first.
VRAMSCOPE_EXPORT void vramscope_prior(int kind,
                                      int device,
                                      unsigned long address,
                                      unsigned long size_bytes,
                                      const char* name) {
  if (device >= 0)
    CudaNoteDevice(device);
  if (kind == static_cast<int>(format::PriorKind::kProcess))
    g_began.store(Now(), std::memory_order_relaxed);
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  scope->Append(format::Prior{
      .time = g_began.load(std::memory_order_relaxed),
      .kind = static_cast<uint64_t>(kind),
      .device = device,
      .address = address,
      .size = size_bytes,
      .name = name != nullptr ? scope->InternString(name, CutText(name, kMaxNameBytes)) : 0});
}
