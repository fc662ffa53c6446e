// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "probe/hooks/cuda/hook_table.h"

// How the probe gets in front of the CUDA driver: which file is the driver and where it is
// (driver_library.cc), which other tools are there (other_tools.cc), and what is done for the CUDA
// runtime (runtime.cc). attach.cc redirects the look-ups of its functions
// (platform/symbol_table.h).
namespace vramscope::probe {
class ImportPlan;
namespace cuda {

// Other tools between this process and the driver.
struct OtherTools {
  char names[128] = {};        // "Nsight Systems, HAMi", or ""
  bool must_be_alone = false;  // one of them changes what the driver does: nothing is redirected
};

// By the names of loaded libraries, the environment, and who traces this process. Once a process,
// when a driver is found: it opens a file or two.
void FindOtherTools(OtherTools* tools);

// Replaces an entry point that the program asked for by its wrapper.
void PutWrapper(void** function);

// The functions of the CUDA runtime that PyTorch's allocator calls. A runtime that ran before the
// probe came has its own pointers into the driver, so its calls to the driver are not seen there.
// The allocator's calls to the runtime are: they go by name, through slots of libc10_cuda.so that
// then point to functions of runtime.cc. If the driver's wrapper is called anyway, that one
// records. Finds the real functions. A function that is missing, as without a shared runtime, is
// not planned.
void PlanRuntimeImports(ImportPlan* plan);

// Whether opening `file` is opening the driver: "libcuda.so*" in any directory, or a link to it.
bool NamesDriver(const char* file);

// Opens what dlopen(file, mode) would open for code at `caller`, whose own search path ($ORIGIN,
// RPATH, RUNPATH) can lead to another driver than the probe's. nullptr if that cannot be determined
// or the file does not open.
void* OpenDriver(const char* file, int mode, const void* caller);

// Opens the driver before a library that is linked with it and that will look for symbols in its
// own dependencies first (RTLD_DEEPBIND). nullptr if the library is not linked with the driver.
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

// How many drivers are in link namespaces other than the probe's (dlmopen). 0 if the C library
// keeps no list of them (before glibc 2.35).
size_t DriversInOtherNamespaces();

}  // namespace cuda
}  // namespace vramscope::probe
