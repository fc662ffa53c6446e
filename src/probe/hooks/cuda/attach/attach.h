// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "probe/hooks/cuda/hook_table.h"

// What attaching to the driver needs besides the driver itself.
namespace vramscope::probe {
class ImportPlan;
namespace cuda {

// Other tools that stand between this process and the driver.
struct OtherTools {
  char names[128] = {};        // "Nsight Systems, HAMi", or ""
  bool must_be_alone = false;  // one of them changes what the driver does: nothing is redirected
};

// By the names of loaded libraries, the environment, and who traces this process. Once a process,
// when a driver is found: it opens a file or two.
void FindOtherTools(OtherTools* tools);

// Where an entry point was asked for and is found, leads to its wrapper instead.
void PutWrapper(void** function);

// What PyTorch's allocator asks of the CUDA runtime. A runtime that was at work before the probe
// came has its pointers into the driver already, so there its calls to the driver go unseen; the
// allocator's calls to the runtime come by name, through slots of libc10_cuda.so that are pointed
// to functions of runtime.cc. Where the driver's wrapper is called all the same, that one records.
// Finds the real functions; what has none, as where there is no shared runtime, is not planned.
void PlanRuntimeImports(ImportPlan* plan);

}  // namespace cuda
}  // namespace vramscope::probe
