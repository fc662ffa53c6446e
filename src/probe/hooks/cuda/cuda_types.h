// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// The types of cuda.h that the wrappers need, repeated here so that the probe builds without a CUDA
// toolkit. Enumerations are ints, handles are opaque pointers, structures have the fields that are
// read. cuda_abi_test.cc compares all of it with the real header where there is one.
namespace vramscope::probe::cuda {

using CUresult = int;
inline constexpr CUresult kSuccess = 0;
inline constexpr CUresult kInvalidValueError = 1;  // CUDA_ERROR_INVALID_VALUE
inline constexpr CUresult kOutOfMemoryError = 2;   // CUDA_ERROR_OUT_OF_MEMORY
inline constexpr CUresult kNoDeviceError = 100;    // CUDA_ERROR_NO_DEVICE
inline constexpr CUresult kNotFoundError = 500;    // CUDA_ERROR_NOT_FOUND

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUdeviceptr_v1 = unsigned int;  // of the entry points without _v2
using CUmemGenericAllocationHandle = unsigned long long;
using cuuint64_t = uint64_t;

using CUcontext = struct CUctx_st*;
using CUgreenCtx = struct CUgreenCtx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
using CUarray = struct CUarray_st*;
using CUmipmappedArray = struct CUmipmappedArray_st*;
using CUevent = struct CUevent_st*;
using CUstream = struct CUstream_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUexternalMemory = struct CUextMemory_st*;
using CUdevResourceDesc = struct CUdevResourceDesc_st*;

// Only passed through.
struct CUctxCreateParams;
struct CUexecAffinityParam;
struct CUlaunchConfig;
struct CUDA_GRAPH_INSTANTIATE_PARAMS;
struct CUgraphEdgeData;
struct CUgraphExecUpdateResultInfo;
struct CUmulticastObjectProp;
struct CUcheckpointLockArgs;
struct CUcheckpointCheckpointArgs;
struct CUcheckpointRestoreArgs;
struct CUcheckpointUnlockArgs;

// Enumerations.
using CUlimit = int;
using CUmem_advise = int;
using CUfunction_attribute = int;
using CUjit_option = int;
using CUlibraryOption = int;
using CUstreamCaptureMode = int;
using CUstreamCaptureStatus = int;
inline constexpr CUstreamCaptureStatus kCaptureStatusActive = 1;
using CUmemAllocationHandleType = int;
inline constexpr CUmemAllocationHandleType kHandleFabric = 8;  // CU_MEM_HANDLE_TYPE_FABRIC
using CUmemRangeHandleType = int;
using CUmemAllocationType = int;
inline constexpr CUmemAllocationType kAllocationPinned = 1;   // CU_MEM_ALLOCATION_TYPE_PINNED
inline constexpr CUmemAllocationType kAllocationManaged = 2;  // CU_MEM_ALLOCATION_TYPE_MANAGED
using CUgraphExecUpdateResult = int;
using CUdriverProcAddressQueryResult = int;
using CUmemPool_attribute = int;
inline constexpr CUmemPool_attribute kPoolReleaseThreshold = 4;
inline constexpr CUmemPool_attribute kPoolReservedCurrent = 5;
inline constexpr CUmemPool_attribute kPoolUsedCurrent = 7;
using CUgraphMem_attribute = int;
inline constexpr CUgraphMem_attribute kGraphUsedCurrent = 0;
inline constexpr CUgraphMem_attribute kGraphReservedCurrent = 2;
inline constexpr int kLocationNone = 0;      // CU_MEM_LOCATION_TYPE_NONE
inline constexpr int kLocationDevice = 1;    // CU_MEM_LOCATION_TYPE_DEVICE
inline constexpr int kLocationHostNuma = 3;  // CU_MEM_LOCATION_TYPE_HOST_NUMA
inline constexpr int kAccessReadWrite = 3;   // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
using CUdevice_attribute = int;
inline constexpr CUdevice_attribute kAttributeHostNumaId = 134;  // ..._HOST_NUMA_ID
using CUgraphNodeType = int;
inline constexpr CUgraphNodeType kNodeMemAlloc = 10;  // CU_GRAPH_NODE_TYPE_MEM_ALLOC
using CUpointer_attribute = int;
inline constexpr CUpointer_attribute kPointerContext = 1;  // CU_POINTER_ATTRIBUTE_CONTEXT
inline constexpr CUpointer_attribute kPointerMemoryType = 2;
inline constexpr CUpointer_attribute kPointerOnDevice = 3;  // ..._DEVICE_POINTER
inline constexpr CUpointer_attribute kPointerOnHost = 4;    // ..._HOST_POINTER
inline constexpr CUpointer_attribute kPointerIsManaged = 8;
inline constexpr CUpointer_attribute kPointerDevice = 9;  // ..._DEVICE_ORDINAL
inline constexpr CUpointer_attribute kPointerRangeStart = 11;
inline constexpr CUpointer_attribute kPointerRangeSize = 12;
inline constexpr CUpointer_attribute kPointerPool = 17;  // ..._MEMPOOL_HANDLE
inline constexpr unsigned int kMemoryTypeDevice = 2;     // CU_MEMORYTYPE_DEVICE

struct CUuuid {
  unsigned char bytes[16];
};

struct CUipcMemHandle {
  char reserved[64];
};

struct CUmemLocation {
  int type;
  int id;
};

struct CUmemAllocationProp {
  int type;
  int requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  unsigned char allocFlags[8];
};

struct CUmemAccessDesc {
  CUmemLocation location;
  int flags;
};

struct CUmemPoolProps {
  int allocType;
  int handleTypes;
  CUmemLocation location;
  void* win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};

struct CUmemPoolPtrExportData {
  unsigned char reserved[64];
};

struct CUmemFabricHandle {
  unsigned char data[64];
};

struct CUDA_MEM_ALLOC_NODE_PARAMS {
  CUmemPoolProps poolProps;
  const void* accessDescs;
  size_t accessDescCount;
  size_t bytesize;
  CUdeviceptr dptr;
};

struct CUgraphNodeParams {
  CUgraphNodeType type;
  int reserved0[3];
  union {
    long long reserved1[29];
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
  };
  long long reserved2;
};

struct CUDA_ARRAY_DESCRIPTOR {
  size_t Width;
  size_t Height;
  int Format;
  unsigned int NumChannels;
};

struct CUDA_ARRAY3D_DESCRIPTOR {
  size_t Width;
  size_t Height;
  size_t Depth;
  int Format;
  unsigned int NumChannels;
  unsigned int Flags;
};

struct CUDA_ARRAY_DESCRIPTOR_v1 {
  unsigned int Width;
  unsigned int Height;
  int Format;
  unsigned int NumChannels;
};

struct CUDA_ARRAY3D_DESCRIPTOR_v1 {
  unsigned int Width;
  unsigned int Height;
  unsigned int Depth;
  int Format;
  unsigned int NumChannels;
  unsigned int Flags;
};

struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
  int type;
  void* handle[2];
  unsigned long long size;
  unsigned int flags;
  unsigned int reserved[16];
};

struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
  unsigned long long offset;
  unsigned long long size;
  unsigned int flags;
  unsigned int reserved[16];
};

struct CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
  unsigned long long offset;
  CUDA_ARRAY3D_DESCRIPTOR arrayDesc;
  unsigned int numLevels;
  unsigned int reserved[16];
};

struct CUDA_LAUNCH_PARAMS {
  CUfunction function;
  unsigned int gridDimX;
  unsigned int gridDimY;
  unsigned int gridDimZ;
  unsigned int blockDimX;
  unsigned int blockDimY;
  unsigned int blockDimZ;
  unsigned int sharedMemBytes;
  CUstream hStream;
  void** kernelParams;
};

}  // namespace vramscope::probe::cuda
