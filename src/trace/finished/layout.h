// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "trace/trace.h"

// The finished file: one recording in one file, which opens on any machine. All integers are little
// endian.
//
//   offset 0   FileHeader   32 bytes: kFinishedMagic, version, header size
//              frame | frame | frame | ...
//   end - 24   Trailer      24 bytes: where the index frame is
//
//   frame:     FrameHeader (56 bytes, with its own checksum) | stored bytes, one zstd frame
//
// A frame holds rows of one kind as columns: tables first, then events in time order, up to 65,536
// a frame, then the losses, then the index of all frames. A reader that finds trailer and index
// whole reads only the frames it needs. Where the end is missing or damaged it looks for frames by
// their magic, from the front: everything that is whole is used.
namespace vramscope::trace::finished {

inline constexpr uint16_t kMajorVersion = 1;
inline constexpr uint16_t kMinorVersion = 1;
inline constexpr uint64_t kFrameMagic = 0x314d524652564dffull;
inline constexpr uint64_t kTrailerMagic = 0x31444e455256ff4dull;

// Limits that a reader holds a file to before it believes a size.
inline constexpr uint32_t kMaxRawBytes = 64u << 20;
inline constexpr uint32_t kMaxStoredBytes = 64u << 20;
inline constexpr uint32_t kMaxRows = 1u << 20;

inline constexpr size_t kEventsPerFrame = 65536;
inline constexpr size_t kTableRowsPerFrame = 65536;
inline constexpr size_t kTableTextPerFrame = 1u << 20;

enum class FrameType : uint16_t {
  kSession = 1,
  kDevices = 2,
  kProcesses = 3,
  kThreads = 4,
  kStrings = 5,
  kFrames = 6,
  kStacks = 7,
  kSourceLines = 8,
  kLosses = 9,
  kEvents = 10,
  kIndex = 11,
};

struct FileHeader {
  char magic[8];
  uint16_t major;
  uint16_t minor;
  uint32_t header_bytes;  // offset of the first frame
  uint64_t reserved[2];
};
static_assert(sizeof(FileHeader) == 32);

struct FrameHeader {
  uint64_t magic;
  uint16_t type;  // FrameType; an unknown one is skipped
  uint16_t flags;
  uint32_t stored_bytes;
  uint32_t raw_bytes;
  uint32_t rows;
  int64_t first;         // events: time of the first one; tables: index of the first row
  int64_t last;          // events: time of the last one; tables: index of the last row
  uint32_t payload_crc;  // crc32c of the stored bytes
  uint32_t header_crc;   // crc32c of this header up to here
  uint64_t reserved;
};
static_assert(sizeof(FrameHeader) == 56);

struct Trailer {
  uint64_t index_offset;
  uint64_t magic;
  uint32_t crc;  // crc32c of the two fields before
  uint32_t reserved;
};
static_assert(sizeof(Trailer) == 24);

}  // namespace vramscope::trace::finished
