// SPDX-License-Identifier: Apache-2.0
#pragma once

// The CUDA driver as the probe sees it. Every way to an entry point of libcuda leads to a wrapper:
//
//   dlsym, on any handle          the driver's own dynamic symbol table is rewritten in memory as
//   relocations after its load    soon as it is loaded (see symbol_patch.h)
//   cuGetProcAddress              wrapped: the pointer that the driver returned is mapped
//   DT_NEEDED clients             the probe exports the wrappers under the entry points' names
//   private export tables         untouched: what goes through them shows in the readings
namespace vramscope::probe {

// Must be called with the arguments of every dlopen, before the library is loaded. Where `file` is
// the CUDA driver, loads it in the same way (so that RTLD_NOLOAD still loads nothing), keeps it, and
// puts the wrappers in.
void CudaObserveDlopen(const char* file, int mode);

// Whether a driver was found in this process and its entry points lead to the wrappers.
bool CudaIsActive();

// After fork, in the child: contexts, pools and devices of the parent are to be described anew, if
// they turn up at all.
void CudaForgetParent();

}  // namespace vramscope::probe
