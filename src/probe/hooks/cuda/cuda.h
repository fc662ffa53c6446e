// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// The CUDA driver as the probe sees it. Every way to an entry point of libcuda leads to a wrapper:
//
//   dlsym, on any handle          the driver's own dynamic symbol table is rewritten in memory as
//   relocations after its load    soon as it is loaded (see symbol_patch.h)
//   cuGetProcAddress              wrapped: the pointer that the driver returned is mapped
//   DT_NEEDED clients             the probe exports the wrappers under the entry points' names;
//                                 where a library prefers its own dependencies (RTLD_DEEPBIND), the
//                                 driver is loaded and rewritten before it, or its slots are after
//   private export tables         untouched: what goes through them shows in the readings
namespace vramscope::probe {

// Must be called with the arguments of every dlopen and an address in the code that calls it,
// before the library is loaded. Where `file` is the CUDA driver, it is loaded here in the same way
// (RTLD_NOLOAD still loads nothing), kept, and the wrappers are put in. A driver that came in since
// the last call as a part of something else is found now.
void CudaObserveDlopen(const char* file, int mode, const void* caller);

// The same for a library that is about to be loaded into a link namespace of its own, where nothing
// of the probe's can be: a driver there is a loss.
void CudaObserveNamespace(const char* file);

// At the probe's own start: a driver that the program is linked with.
void CudaObserveStart();
// At the end: drivers that nobody could see are a loss.
void CudaObserveEnd();

// In a process under way: a driver that is loaded already, with what other libraries keep of its
// entry points. Whether there is one.
bool CudaAttachLoaded();

// A recording was ended: in the next one devices, contexts and pools are described anew.
void CudaForget();

// Describes a device, so that its number can be joined to NVML's. Nothing without a driver.
void CudaNoteDevice(int32_t device);

// Whether a driver was found in this process and its entry points lead to the wrappers.
bool CudaIsActive();

// `observe` is called by whichever thread captured or launches a graph: often, so it must be quick.
void CudaObserveGraphs(void (*observe)(bool captured));

// Reads the driver's free-memory figure into the trace, so that an instant which the program named
// has a figure of its own. Nothing without a current context or during stream capture.
void CudaMarkReading();

// The device whose memory `address` is in, whatever the current context: with one device in use
// that one, else the driver's word. format::kNoDevice where no device is in use.
int32_t CudaDeviceOf(const void* address);

}  // namespace vramscope::probe
