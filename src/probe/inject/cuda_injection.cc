// SPDX-License-Identifier: Apache-2.0
#include "base/compiler.h"
#include "probe/hooks/cuda/cuda.h"
#include "probe/inject/sources.h"
#include "probe/session/session.h"

// The way in where nothing can be preloaded: with CUDA_INJECTION64_PATH set to the probe the driver
// opens it within the program's cuInit, and calls this.
using namespace vramscope::probe;

VRAMSCOPE_EXPORT int InitializeInjection() {
  SourcesLoad();
  // Preloaded as well: everything is in place, and nothing is done here.
  const bool is_wanted = !SessionIsOff();
  if (is_wanted && !CudaIsActive() && CudaAttachLoaded())
    PatchLoadedObjects();
  return 1;
}
