// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// The part of the CUDA driver API that this example uses, declared here and resolved at run time,
// so that it builds on a machine without a CUDA toolkit. Layouts and names are those of cuda.h 12
// and 13.
namespace driver {

using Result = int;  // 0: success
using Device = int;
using DevicePointer = unsigned long long;
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;
using Array = struct ArrayTag*;
using PhysicalHandle = unsigned long long;

struct ArrayDescriptor {
  size_t width;
  size_t height;
  int format;  // 0x20: float
  unsigned channels;
};

struct Location {
  int type;  // 1: device
  int id;
};

struct AllocationProperties {
  int type;  // 1: pinned
  int handle_types;
  Location location;
  void* win32_meta_data;
  struct {
    unsigned char compression;
    unsigned char gpu_direct_rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};

struct AccessDescriptor {
  Location location;
  int flags;  // 3: read and write
};

// One list: symbol, member, parameters. The suffixes are those of the exports behind cuda.h's
// macros.
#define VRAMSCOPE_EXAMPLE_ENTRIES(X)                                                            \
  X(cuInit, Init, (unsigned))                                                                   \
  X(cuDeviceGet, DeviceGet, (Device*, int))                                                     \
  X(cuDeviceGetName, DeviceGetName, (char*, int, Device))                                       \
  X(cuDevicePrimaryCtxRetain, PrimaryCtxRetain, (Context*, Device))                             \
  X(cuDevicePrimaryCtxRelease_v2, PrimaryCtxRelease, (Device))                                  \
  X(cuCtxSetCurrent, CtxSetCurrent, (Context))                                                  \
  X(cuCtxSynchronize, CtxSynchronize, ())                                                       \
  X(cuMemGetInfo_v2, MemGetInfo, (size_t*, size_t*))                                            \
  X(cuMemAlloc_v2, MemAlloc, (DevicePointer*, size_t))                                          \
  X(cuMemAllocPitch_v2, MemAllocPitch, (DevicePointer*, size_t*, size_t, size_t, unsigned))     \
  X(cuMemAllocManaged, MemAllocManaged, (DevicePointer*, size_t, unsigned))                     \
  X(cuMemFree_v2, MemFree, (DevicePointer))                                                     \
  X(cuMemHostAlloc, MemHostAlloc, (void**, size_t, unsigned))                                   \
  X(cuMemFreeHost, MemFreeHost, (void*))                                                        \
  X(cuMemAllocAsync, MemAllocAsync, (DevicePointer*, size_t, Stream))                           \
  X(cuMemFreeAsync, MemFreeAsync, (DevicePointer, Stream))                                      \
  X(cuArrayCreate_v2, ArrayCreate, (Array*, const ArrayDescriptor*))                            \
  X(cuArrayDestroy, ArrayDestroy, (Array))                                                      \
  X(cuMemGetAllocationGranularity, GetGranularity, (size_t*, const AllocationProperties*, int)) \
  X(cuMemAddressReserve, AddressReserve,                                                        \
    (DevicePointer*, size_t, size_t, DevicePointer, unsigned long long))                        \
  X(cuMemAddressFree, AddressFree, (DevicePointer, size_t))                                     \
  X(cuMemCreate, MemCreate,                                                                     \
    (PhysicalHandle*, size_t, const AllocationProperties*, unsigned long long))                 \
  X(cuMemRelease, MemRelease, (PhysicalHandle))                                                 \
  X(cuMemMap, MemMap, (DevicePointer, size_t, size_t, PhysicalHandle, unsigned long long))      \
  X(cuMemUnmap, MemUnmap, (DevicePointer, size_t))                                              \
  X(cuMemSetAccess, MemSetAccess, (DevicePointer, size_t, const AccessDescriptor*, size_t))     \
  X(cuMemcpyDtoH_v2, MemcpyDtoH, (void*, DevicePointer, size_t))                                \
  X(cuStreamCreate, StreamCreate, (Stream*, unsigned))                                          \
  X(cuStreamSynchronize, StreamSynchronize, (Stream))                                           \
  X(cuStreamDestroy_v2, StreamDestroy, (Stream))                                                \
  X(cuModuleLoadData, ModuleLoadData, (Module*, const void*))                                   \
  X(cuModuleUnload, ModuleUnload, (Module))                                                     \
  X(cuModuleGetFunction, ModuleGetFunction, (Function*, Module, const char*))                   \
  X(cuLaunchKernel, LaunchKernel,                                                               \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,    \
     void**, void**))

struct Api {
#define VRAMSCOPE_EXAMPLE_MEMBER(symbol, member, parameters) Result(*member) parameters = nullptr;
  VRAMSCOPE_EXAMPLE_ENTRIES(VRAMSCOPE_EXAMPLE_MEMBER)
#undef VRAMSCOPE_EXAMPLE_MEMBER
};

// Loads libcuda.so.1; ends the program with one line where there is none.
const Api& Load();

// Ends the program with one line unless `result` is success.
void Check(Result result, const char* what);

}  // namespace driver
