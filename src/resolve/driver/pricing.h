// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "format/enums.h"
#include "resolve/attribute/parts.h"

// What the driver takes for a request, as measured (CUDA 13 on an H200): requests of 2 MiB and more
// take multiples of 2 MiB of their own, smaller ones share slabs of 2 MiB. One above 1 MiB begins a
// slab where there is room in none.
namespace vramscope::resolve {

inline constexpr uint64_t kDriverPageBytes = uint64_t{2} << 20;
inline constexpr int kDriverPageBits = 21;
// Allocators cut their blocks out of larger allocations than this: smaller ones are no segments.
inline constexpr uint64_t kLargestUncutBytes = uint64_t{1} << 20;

// Sizes of a damaged trace can be anything; sums of a few million of these cannot overflow.
inline constexpr uint64_t kLargestSize = uint64_t{1} << 50;

inline bool IsDeviceMemory(format::MemoryKind kind) {
  return kind == format::MemoryKind::kDevice || kind == format::MemoryKind::kPitched;
}

inline bool IsHostMemory(format::MemoryKind kind) {
  return kind == format::MemoryKind::kHostPinned || kind == format::MemoryKind::kHostRegistered ||
         kind == format::MemoryKind::kOverflow;
}

// Allocators may cut blocks out of it.
inline bool IsLinear(format::MemoryKind kind) {
  return IsDeviceMemory(kind) || kind == format::MemoryKind::kOverflow;
}

inline bool SharesSlab(format::MemoryKind kind, uint64_t bytes) {
  return IsDeviceMemory(kind) && bytes < kDriverPageBytes;
}

// Bytes that an allocation takes of its device, its slab's slack apart.
inline uint64_t PriceOf(format::MemoryKind kind, uint64_t asked, uint64_t actual) {
  const uint64_t bytes = std::max(asked, actual);
  switch (kind) {
    case format::MemoryKind::kDevice:
    case format::MemoryKind::kPitched:
      return bytes < kDriverPageBytes ? bytes
                                      : (bytes + kDriverPageBytes - 1) & ~(kDriverPageBytes - 1);
    case format::MemoryKind::kManaged:    // on the device only where touched
    case format::MemoryKind::kIpcImport:  // the exporter pays
    case format::MemoryKind::kExternal:
      return 0;
    case format::MemoryKind::kAsync:
    case format::MemoryKind::kArray:
    case format::MemoryKind::kHostPinned:
    case format::MemoryKind::kHostRegistered:
    case format::MemoryKind::kOverflow:
      break;
  }
  return bytes;
}

inline Part PartOfMemory(format::MemoryKind kind) {
  switch (kind) {
    case format::MemoryKind::kArray:
      return Part::kArrays;
    case format::MemoryKind::kManaged:
      return Part::kManaged;
    case format::MemoryKind::kIpcImport:
    case format::MemoryKind::kExternal:
      return Part::kImported;
    case format::MemoryKind::kHostPinned:
      return Part::kPinned;
    case format::MemoryKind::kHostRegistered:
      return Part::kRegistered;
    case format::MemoryKind::kDevice:
    case format::MemoryKind::kPitched:
    case format::MemoryKind::kAsync:
    case format::MemoryKind::kOverflow:
      break;
  }
  return Part::kAllocated;
}

}  // namespace vramscope::resolve
