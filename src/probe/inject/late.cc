// SPDX-License-Identifier: Apache-2.0
#include <limits.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "base/compiler.h"
#include "format/enums.h"
#include "probe/hooks/cuda/cuda.h"
#include "probe/hooks/lines/lines.h"
#include "probe/hooks/torch/holders.h"
#include "probe/hooks/torch/torch.h"
#include "probe/inject/sources.h"
#include "probe/session/scopes.h"
#include "probe/session/session.h"
#include "probe/session/stream.h"
#include "probe/stack/python/api.h"
#include "probe/stack/stacks.h"

// Ways in to a process under way: the Python package's, and the driver's own.
namespace vramscope::probe {
namespace {

constexpr size_t kMaxNameBytes = 1024;
std::atomic<uint64_t> g_began{0};

// Whether `vramscope attach` still waits for `answer`: it deletes this file otherwise.
bool TakeTicket(const char* answer) {
  char ticket[PATH_MAX];
  const int size = std::snprintf(ticket, sizeof ticket, "%s.call", answer);
  return size > 0 && size < PATH_MAX && unlink(ticket) == 0;
}

}  // namespace
}  // namespace vramscope::probe

using namespace vramscope;
using namespace vramscope::probe;

// Begins a recording of this process alone.
VRAMSCOPE_EXPORT int vramscope_attach(const char* live_dir, const char* options) {
  PatchLoadedObjects();
  if (const int error = SessionAttach(live_dir, options); error != 0)
    return error;
  SourcesBeginLate();
  return 0;
}

// Ends that recording; its directory can be finished then. If Python runs, the caller holds the
// GIL, and calls the next function while it holds it.
VRAMSCOPE_EXPORT void vramscope_detach() {
  {
    const WayGiver way_giver;
    TorchLookLast();
  }
  SessionDetach();
  SourcesForget();
}

// Has the probe look at this Python and, where it is imported whole, at torch. A preloaded probe
// looks on its own, when torch is loaded.
VRAMSCOPE_EXPORT void vramscope_look_at_python(int has_torch) {
  if (SessionIsOff())
    return;
  constexpr char kTorch[] = "libtorch.so";
  PythonObserveOpening(kTorch);
  TorchObserveOpening(kTorch);
  if (has_torch == 0)
    return;
  const WayGiver way_giver;
  TorchLook();
}

// Before a mark of python/vramscope/_annotate.py, with the GIL: tensors that are gone must have
// ended by then.
VRAMSCOPE_EXPORT void vramscope_before_mark() {
  TorchEndGraphTensors();
}

// Memory that was allocated before recording began. All records have the time of the call with kind
// kProcess, which comes first.
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

// What `vramscope attach` calls in a program without Python, in a thread of its own
// (record/attach/remote_call.cc). `answer`: path of a symbolic link that answers, "done" or an
// error. Nothing is done if nobody waits for it any more.
VRAMSCOPE_EXPORT void vramscope_begin_native(const char* live_dir,
                                             const char* options,
                                             const char* answer) {
  if (!TakeTicket(answer))
    return;
  const int error = vramscope_attach(live_dir, options);
  if (error == 0)
    vramscope_prior(static_cast<int>(format::PriorKind::kProcess), format::kNoDevice, 0, 0,
                    "vramscope.start");
  (void)symlink(error == 0 ? "done" : std::strerror(error), answer);
}

VRAMSCOPE_EXPORT void vramscope_end_native(const char*, const char*, const char* answer) {
  if (!TakeTicket(answer))
    return;
  SessionSetPaused(true);
  vramscope_detach();
  (void)symlink("done", answer);
}

// The functions of the line profiler, for python/vramscope/_line_tracer.py: a new dict, or null. It
// needs no recording. The caller holds the GIL.
VRAMSCOPE_EXPORT void* vramscope_line_profiler() {
  PatchLoadedObjects();
  return LineProfilerFunctions();
}

// For python/vramscope/_holders.py: see probe/hooks/torch/holders.h.
VRAMSCOPE_EXPORT void* vramscope_find_holders(void* arguments) {
  return FindHolders(arguments);
}

VRAMSCOPE_EXPORT long vramscope_bytes_of_holder(unsigned place) {
  return BytesOfHolder(place);
}

VRAMSCOPE_EXPORT void vramscope_forget_holders() {
  ForgetHolders();
}

// The way in where nothing can be preloaded: with CUDA_INJECTION64_PATH set to the probe the driver
// opens it within the program's cuInit, and calls this.
VRAMSCOPE_EXPORT int InitializeInjection() {
  SourcesLoad();
  // Preloaded as well: everything is in place, and nothing is done here.
  const bool is_wanted = !SessionIsOff();
  if (is_wanted && !CudaIsActive() && CudaAttachLoaded())
    PatchLoadedObjects();
  return 1;
}
