// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/lines/line_profiler.h"

#include "base/compiler.h"
#include "probe/inject/sources.h"

// The functions of the line profiler, for python/vramscope/_line_tracer.py: a new dict, or null. It
// needs no recording. The caller holds the GIL.
VRAMSCOPE_EXPORT void* vramscope_line_profiler() {
  vramscope::probe::PatchLoadedObjects();
  return vramscope::probe::LineProfilerFunctions();
}
