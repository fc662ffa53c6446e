// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

// The live file: what one writer (the probe of one process, or the launcher) leaves on disk while
// it runs. All integers are little endian.
//
//   offset 0        FileHeader            4096 bytes
//   offset 4096     chunk | chunk | ...   each a multiple of 4096 bytes, at a multiple of 4096
//
//   chunk:   ChunkHeader (64 bytes) | record | record | ... | zeros up to the chunk's size
//   record:  type (1) | length (1)            | payload
//            type (1) | 0xff | length (4, LE) | payload      payloads of 255 bytes and more
//
// A thread owns a chunk and is the only one to write it: it appends a record, then stores
// `committed_bytes` with release order. Whatever the process's end, everything committed is
// readable; at most the record being written is lost. Delta state (time, address) begins anew in
// each chunk, so a damaged chunk harms no other, except for the ids that it defined.
namespace vramscope::format {

inline constexpr char kFileMagic[8] = {'V', 'R', 'A', 'M', 'L', 'I', 'V', 'E'};
inline constexpr uint16_t kMajorVersion = 1;
inline constexpr uint16_t kMinorVersion = 2;
inline constexpr uint32_t kChunkMagic = 0x4b435356;  // "VSCK"
inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kFirstChunkBytes = 64 * 1024;
inline constexpr size_t kChunkBytes = 256 * 1024;
inline constexpr size_t kMaxBlobBytes = 32 * 1024;

// A process that could not make its file leaves a symbolic link with this ending to the number of
// the error (errno), in the same directory.
inline constexpr char kUnrecordedExtension[] = ".unrecorded";

enum class WriterKind : uint16_t { kProbe = 0, kLauncher = 1 };

enum FileFlags : uint32_t {
  kTicksAreTsc = 1u << 0,    // else ticks are CLOCK_MONOTONIC nanoseconds
  kClosedCleanly = 1u << 1,  // the writer said goodbye
};

struct FileHeader {
  char magic[8];
  uint16_t major;
  uint16_t minor;
  uint16_t writer;        // WriterKind
  uint16_t header_bytes;  // offset of the first chunk
  std::atomic<uint32_t> flags;
  uint32_t pid;
  uint32_t parent_pid;
  uint32_t reserved;
  uint64_t start_ticks;                // one instant on both clocks, and on the wall
  int64_t start_ns;                    // CLOCK_MONOTONIC
  int64_t start_wall_ns;               // CLOCK_REALTIME
  std::atomic<uint64_t> anchor_ticks;  // a later instant; anchor_ns is stored last, 0 until then
  std::atomic<int64_t> anchor_ns;
  std::atomic<uint64_t> end_bytes;  // chunks were claimed up to this file offset
  std::atomic<uint64_t> lost[32];   // count by Loss, for what could not be written as a record
  char command[2048];               // NUL-separated argv, cut if longer
  char executable[1024];            // NUL-terminated
};
static_assert(sizeof(FileHeader) <= kPageBytes);

struct ChunkHeader {
  uint32_t magic;
  uint32_t size_bytes;  // of the whole chunk, this header included
  uint32_t stream;      // which thread's writer, from 1
  uint32_t sequence;    // 0, 1, 2, ... within the stream
  uint64_t base_ticks;  // first value of the time delta, and an anchor with base_ns
  int64_t base_ns;
  std::atomic<uint32_t> committed_bytes;  // of records after this header
  std::atomic<uint32_t> sealed;           // 1: crc32c covers the committed records
  uint32_t crc32c;
  uint32_t tid;  // the thread when the chunk was begun
  uint64_t reserved[2];
};
static_assert(sizeof(ChunkHeader) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace vramscope::format
