// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the rest of the probe knows of the CUDA hooks.
namespace vramscope::probe {

// Called before any library is loaded. When `file` is the CUDA driver it is loaded here first and
// its entry points are redirected to the hooks, before anybody can ask for them.
void CudaObserveDlopen(const char* file, int mode);

// Whether a real driver was found and redirected.
bool CudaIsActive();

// Reads the device's free memory now, if a context is current, so that a mark has a figure beside
// it.
void CudaMarkReading();

}  // namespace vramscope::probe
