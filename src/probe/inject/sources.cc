// SPDX-License-Identifier: Apache-2.0
#include "probe/inject/sources.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>

#include "probe/hooks/cuda/cuda.h"
#include "probe/hooks/pjrt/plugins.h"
#include "probe/hooks/torch/torch.h"
#include "probe/platform/dynamic.h"
#include "probe/session/session.h"
#include "probe/session/source.h"
#include "probe/stack/native/unwind.h"
#include "probe/stack/stacks.h"

extern "C" __attribute__((visibility("hidden"))) void* vramscope_dlopen(const char* file, int mode);

namespace vramscope::probe {
namespace {

// PyTorch's names need Python's frames, so Python is looked at first.
constexpr const Source* kSources[] = {&kNativeStackSource, &kPythonSource, &kTorchSource,
                                      &kJaxSource,         &kCudaSource,   &kPjrtSource,
                                      &kC10Source,         &kCupySource,   &kNvtxSource};

constinit std::atomic<bool> g_loaded{false};

template <class... Parameters, class... Arguments>
void CallAll(void (*Source::*step)(Parameters...), Arguments... arguments) {
  for (const Source* const source : kSources) {
    if (source->*step != nullptr)
      (source->*step)(arguments...);
  }
}

void ForkedChild() {
  CallAll(&Source::forked);
}

}  // namespace

void SourcesLoad() {
  SessionLoad();
  if (!g_loaded.load(std::memory_order_relaxed) && !g_loaded.exchange(true))
    pthread_atfork(nullptr, nullptr, ForkedChild);  // after the session's own
}

void SourcesBegin() {
  CallAll(&Source::begin);
}

void SourcesObserveOpening(const Opening& opening) {
  CallAll(&Source::opening, opening);
}

void SourcesBeginLate() {
  CallAll(&Source::begin_late);
}

void SourcesForget() {
  CallAll(&Source::forget);
}

void SourcesEnd() {
  CallAll(&Source::end);
}

void PatchLoadedObjects() {
  ImportPlan plan;
  CallAll(&Source::plan_imports, &plan);
#ifdef __x86_64__
  // Not if another tool has replaced the C library's: it would be bypassed.
  if (RealDlsym(RTLD_DEFAULT, "dlopen") == RealDlopenAddress())
    plan.Add("dlopen", nullptr, reinterpret_cast<void*>(vramscope_dlopen));
#endif
  plan.Apply();
}

}  // namespace vramscope::probe
