// SPDX-License-Identifier: Apache-2.0
// Compares what cuda_types.h and cuda_hooks.def write down with the real cuda.h. Built only where
// there is one, of the version that the list was made from or newer.
#define __CUDA_API_VERSION_INTERNAL  // all versions and twins, under their exported names
#include <cuda.h>
#undef __CUDA_API_VERSION_INTERNAL

#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "probe/hooks/cuda/cuda_types.h"
#include "probe/hooks/cuda/hook_table.h"

namespace vramscope::probe::cuda {
namespace {

// Whether two types are passed in the same way: any two pointers are, enumerations are integers,
// and structures need the same size.
template <class Ours, class Theirs>
constexpr bool IsPassedAlike() {
  if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>) {
    return std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>;
  } else if constexpr (std::is_class_v<Theirs>) {
    return std::is_class_v<Ours> && sizeof(Ours) == sizeof(Theirs);
  } else if constexpr (std::is_enum_v<Theirs>) {
    return std::is_integral_v<Ours> && sizeof(Ours) == sizeof(Theirs);
  } else {
    return std::is_integral_v<Ours> && sizeof(Ours) == sizeof(Theirs) &&
           std::is_signed_v<Ours> == std::is_signed_v<Theirs>;
  }
}

template <class Ours, class Theirs>
struct IsCalledAlike : std::false_type {};

template <class... Ours, class... Theirs>
struct IsCalledAlike<int(Ours...), ::CUresult(Theirs...)> {
  static constexpr bool Compare() {
    if constexpr (sizeof...(Ours) == sizeof...(Theirs))
      return (IsPassedAlike<Ours, Theirs>() && ... && true);
    else
      return false;
  }
  static constexpr bool value = Compare();
};

#define VRAMSCOPE_CUDA_HOOK(name, rule, prototype)                                          \
  static_assert(IsCalledAlike<HookTraits<HookId::name>::Function, decltype(::name)>::value, \
                "cuda.h declares " #name " in another way");
#define VRAMSCOPE_CUDA_CALL(name, prototype)                                                \
  static_assert(IsCalledAlike<CallTraits<CallId::name>::Function, decltype(::name)>::value, \
                "cuda.h declares " #name " in another way");
#include "probe/hooks/cuda/cuda_hooks.def"

#define SAME_SIZE(type) static_assert(sizeof(type) == sizeof(::type))
#define SAME_FIELD(type, field)                                     \
  static_assert(offsetof(type, field) == offsetof(::type, field) && \
                sizeof(type::field) == sizeof(::type::field))
SAME_SIZE(CUdeviceptr);
SAME_SIZE(CUmemGenericAllocationHandle);
SAME_SIZE(CUuuid);
SAME_SIZE(CUipcMemHandle);
SAME_SIZE(CUmemPoolPtrExportData);
SAME_SIZE(CUmemLocation);
SAME_FIELD(CUmemLocation, type);
SAME_FIELD(CUmemLocation, id);
SAME_SIZE(CUmemAllocationProp);
SAME_FIELD(CUmemAllocationProp, location);
SAME_SIZE(CUmemAccessDesc);
SAME_FIELD(CUmemAccessDesc, flags);
SAME_SIZE(CUmemPoolProps);
SAME_FIELD(CUmemPoolProps, location);
SAME_FIELD(CUmemPoolProps, allocType);
SAME_SIZE(CUmemFabricHandle);
SAME_SIZE(CUDA_MEM_ALLOC_NODE_PARAMS);
SAME_FIELD(CUDA_MEM_ALLOC_NODE_PARAMS, dptr);
SAME_SIZE(CUgraphNodeParams);
SAME_FIELD(CUgraphNodeParams, alloc);
SAME_SIZE(CUDA_EXTERNAL_MEMORY_HANDLE_DESC);
SAME_FIELD(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size);
SAME_SIZE(CUDA_ARRAY_DESCRIPTOR);
SAME_FIELD(CUDA_ARRAY_DESCRIPTOR, Height);
SAME_FIELD(CUDA_ARRAY_DESCRIPTOR, Format);
SAME_FIELD(CUDA_ARRAY_DESCRIPTOR, NumChannels);
SAME_SIZE(CUDA_ARRAY3D_DESCRIPTOR);
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, Depth);
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, Format);
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, NumChannels);
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR, Flags);
SAME_SIZE(CUDA_ARRAY_DESCRIPTOR_v1);
SAME_FIELD(CUDA_ARRAY_DESCRIPTOR_v1, NumChannels);
SAME_SIZE(CUDA_ARRAY3D_DESCRIPTOR_v1);
SAME_FIELD(CUDA_ARRAY3D_DESCRIPTOR_v1, Flags);
SAME_SIZE(CUDA_EXTERNAL_MEMORY_BUFFER_DESC);
SAME_FIELD(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, size);
SAME_SIZE(CUDA_LAUNCH_PARAMS);
SAME_FIELD(CUDA_LAUNCH_PARAMS, function);

static_assert(kOutOfMemoryError == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kNoDeviceError == CUDA_ERROR_NO_DEVICE);
static_assert(kNotFoundError == CUDA_ERROR_NOT_FOUND);
static_assert(kPoolReservedCurrent == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
static_assert(kPoolUsedCurrent == CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
static_assert(kGraphReservedCurrent == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
static_assert(kGraphUsedCurrent == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
static_assert(kPoolReleaseThreshold == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
static_assert(kAllocationManaged == CU_MEM_ALLOCATION_TYPE_MANAGED);
static_assert(kHandleFabric == CU_MEM_HANDLE_TYPE_FABRIC);
static_assert(kAllocationPinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(kInvalidValueError == CUDA_ERROR_INVALID_VALUE);
static_assert(kLocationHostNuma == CU_MEM_LOCATION_TYPE_HOST_NUMA);
static_assert(kAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kAttributeHostNumaId == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
static_assert(kNodeMemAlloc == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
static_assert(kLocationNone == CU_MEM_LOCATION_TYPE_NONE);
static_assert(kLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(kPointerDevice == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(kPointerContext == CU_POINTER_ATTRIBUTE_CONTEXT);
static_assert(kPointerMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(kPointerOnDevice == CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
static_assert(kPointerOnHost == CU_POINTER_ATTRIBUTE_HOST_POINTER);
static_assert(kPointerRangeStart == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
static_assert(kPointerRangeSize == CU_POINTER_ATTRIBUTE_RANGE_SIZE);
static_assert(kMemoryTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(kCaptureStatusActive == CU_STREAM_CAPTURE_STATUS_ACTIVE);

TEST(CudaAbi, ComparedByTheCompiler) {
  EXPECT_GE(CUDA_VERSION, 13000);
}

}  // namespace
}  // namespace vramscope::probe::cuda
