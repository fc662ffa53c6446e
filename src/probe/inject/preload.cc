// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "base/compiler.h"
#include "probe/hooks/cuda/cuda.h"
#include "probe/hooks/torch/torch.h"
#include "probe/inject/sources.h"
#include "probe/platform/dynamic.h"
#include "probe/session/session.h"
#include "probe/stack/native/unwind.h"

// How the probe gets into a process: the constructor, and the shims of dlopen, dlmopen, exit and
// main.
namespace vramscope::probe {
namespace {

using ExitFn = void (*)(int);
using MainFn = int (*)(int, char**, char**);
using StartMainFn = int (*)(MainFn, int, char**, void (*)(), void (*)(), void (*)(), void*);

constinit MainFn g_main = nullptr;

bool IsOff() {
  return SessionIsOff();
}

// Loaded by hand, into a program under way, the probe is not in the program's own scope.
bool IsPreloaded() {
  void* const program = RealDlopen(nullptr, RTLD_LAZY);
  return program != nullptr && RealDlsym(program, "vramscope_session_path") != nullptr;
}

void ObserveEnd() {
  if (!IsOff() && !TeardownBegan())
    SourcesEnd();
}

int MainAndNote(int argc, char** argv, char** environment) {
  const int status = g_main(argc, argv, environment);
  ObserveEnd();
  NoteTeardown(format::TeardownKind::kMainReturned);
  return status;
}

__attribute__((constructor)) void Load() {
  SourcesLoad();
  LoadNativeStacks();
  CudaObserveGraphs(TorchObserveGraph);
  if (!IsOff() && IsPreloaded())
    SourcesBegin();
}

__attribute__((destructor)) void Unload() {
  SessionAtExit();
}

}  // namespace
}  // namespace vramscope::probe

using namespace vramscope::probe;

// Called by the shims; they return the function to jump to. Never null: without a dlopen behind us
// the process could not have loaded us. The constructors of other libraries can be first to open
// something, before ours.
extern "C" __attribute__((visibility("hidden"))) void*
vramscope_observe_dlopen(const char* file, int mode, const void* caller) {
  SourcesLoad();
  if (file != nullptr && !IsOff())
    SourcesObserveOpening({file, mode, caller, false});
  return RealDlopenAddress();
}

extern "C" __attribute__((visibility("hidden"))) void*
vramscope_observe_dlmopen(Lmid_t space, const char* file, int mode, const void* caller) {
  SourcesLoad();
  if (file != nullptr && !IsOff())
    SourcesObserveOpening({file, mode, caller, space != LM_ID_BASE});
  return RealDlmopenAddress();
}

VRAMSCOPE_EXPORT __attribute__((noreturn)) void exit(int status) {
  ObserveEnd();
  NoteTeardown(vramscope::format::TeardownKind::kExit);
  auto* real = reinterpret_cast<ExitFn>(RealDlsym(RTLD_NEXT, "exit"));
  if (real != nullptr)
    real(status);
  __builtin_trap();  // not reached: libc has an exit
}

VRAMSCOPE_EXPORT int __libc_start_main(MainFn main_function,
                                       int argc,
                                       char** argv,
                                       void (*init)(),
                                       void (*fini)(),
                                       void (*rtld_fini)(),
                                       void* stack_end) {
  auto* real = reinterpret_cast<StartMainFn>(RealDlsym(RTLD_NEXT, "__libc_start_main"));
  g_main = main_function;
  return real(MainAndNote, argc, argv, init, fini, rtld_fini, stack_end);
}
