// SPDX-License-Identifier: Apache-2.0
#pragma once

// What PyTorch's allocator asks of the CUDA runtime. A runtime that was at work before the probe
// came has its pointers into the driver already, so there its calls to the driver go unseen; the
// allocator's calls to the runtime come by name, through slots of libc10_cuda.so that are pointed
// here. Where the driver's wrapper is called all the same, that one records.
namespace vramscope::probe {
class ImportPlan;
namespace cuda {

// Finds the real functions; what has none, as where there is no shared runtime, is not planned.
void PlanRuntimeImports(ImportPlan* plan);

}  // namespace cuda
}  // namespace vramscope::probe
