// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "format/enums.h"
#include "resolve/attribute/owners.h"

// How many bytes the driver allocates for a request, as measured (CUDA 13 on an H200). Requests of
// 2 MiB and more are rounded up to multiples of 2 MiB. Smaller ones share slabs of 2 MiB. A request
// above 1 MiB begins a new slab if no slab has room.
namespace vramscope::resolve {

inline constexpr uint64_t kDriverPageBytes = uint64_t{2} << 20;
inline constexpr int kDriverPageBits = 21;
// Allocators divide only larger allocations into blocks, so smaller ones are not segments.
inline constexpr uint64_t kLargestUncutBytes = uint64_t{1} << 20;

// A damaged trace can have any size; sums of a few million of these cannot overflow.
inline constexpr uint64_t kLargestSize = uint64_t{1} << 50;
// Nor any time; sums and differences of these cannot overflow.
inline constexpr int64_t kLatestNs = int64_t{1} << 61;

inline bool IsDeviceMemory(format::MemoryKind kind) {
  return kind == format::MemoryKind::kDevice || kind == format::MemoryKind::kPitched;
}

inline bool IsHostMemory(format::MemoryKind kind) {
  return kind == format::MemoryKind::kHostPinned || kind == format::MemoryKind::kHostRegistered ||
         kind == format::MemoryKind::kOverflow;
}

// Allocators may divide it into blocks.
inline bool IsLinear(format::MemoryKind kind) {
  return IsDeviceMemory(kind) || kind == format::MemoryKind::kOverflow;
}

inline bool SharesSlab(format::MemoryKind kind, uint64_t bytes) {
  return IsDeviceMemory(kind) && bytes < kDriverPageBytes;
}

// Bytes that an allocation takes of its device, without its slab's slack.
inline uint64_t PriceOf(format::MemoryKind kind, uint64_t asked, uint64_t actual) {
  const uint64_t bytes = std::max(asked, actual);
  switch (kind) {
    case format::MemoryKind::kDevice:
    case format::MemoryKind::kPitched:
      return bytes < kDriverPageBytes ? bytes
                                      : (bytes + kDriverPageBytes - 1) & ~(kDriverPageBytes - 1);
    case format::MemoryKind::kManaged:    // on the device only when touched
    case format::MemoryKind::kIpcImport:  // counts for the exporter
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
