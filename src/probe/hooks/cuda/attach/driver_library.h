// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <link.h>

#include <cstddef>
#include <cstdint>

// Which file is the CUDA driver, and where it is in this process.
namespace vramscope::probe::cuda {

// Whether opening `file` is opening the driver: "libcuda.so*" in any directory, or a link to it.
bool NamesDriver(const char* file);

// Opens what dlopen(file, mode) would open for code at `caller`, whose own search path ($ORIGIN,
// RPATH, RUNPATH) can lead to another driver than the probe's. nullptr where that cannot be told
// or the file does not open.
void* OpenDriver(const char* file, int mode, const void* caller);

// Opens the driver before a library that is linked with it and that will look for symbols in its
// own dependencies first (RTLD_DEEPBIND). nullptr where the library is not linked with the driver.
void* OpenDriverFor(const char* library, const void* caller);

// A driver that was loaded meanwhile, in the order of loading.
struct LoadedDriver {
  const char* path;  // belongs to the loader, as long as the driver stays loaded
  uintptr_t base;    // its load address
  const void* dynamic;
};

// The next driver that this function has not reported yet. Looks only at objects that were loaded
// since its last call, so it can be asked often. Takes the loader's lock.
bool FindNewDriver(LoadedDriver* driver);

// How many drivers are in link namespaces other than the probe's (dlmopen). 0 where the C library
// keeps no list of them (before glibc 2.35).
size_t DriversInOtherNamespaces();

}  // namespace vramscope::probe::cuda
