// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "probe/session/source.h"

// The CUDA driver as the probe sees it. Every way to an entry point of libcuda leads to a wrapper:
//
//   dlsym, on any handle          the driver's own dynamic symbol table is rewritten in memory as
//   relocations after its load    soon as it is loaded (platform/symbol_table.h)
//   cuGetProcAddress              wrapped: the pointer that the driver returned is mapped
//   DT_NEEDED clients             the probe exports the wrappers under the entry points' names;
//                                 where a library prefers its own dependencies (RTLD_DEEPBIND), the
//                                 driver is loaded and rewritten before it, or its slots are after
//   private export tables         untouched: what goes through them shows in the readings
namespace vramscope::probe {

// If a library to be opened is the CUDA driver, it is loaded before that in the same way
// (RTLD_NOLOAD still loads nothing), kept, and the wrappers are put in. A driver that was loaded as
// a part of something else is found at the next opening or at the end. Its unseen calls are a loss.
extern const Source kCudaSource;

// In a process under way: a driver that is loaded already, with what other libraries keep of its
// entry points. Whether there is one.
bool CudaAttachLoaded();

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
// that one, otherwise the driver's answer. format::kNoDevice if no device is in use.
int32_t CudaDeviceOf(const void* address);

}  // namespace vramscope::probe
