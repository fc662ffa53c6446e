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
//
// Checksums, from minor version 3 on: `seal` covers the records up to some KiB, at most
// kSealEveryBytes and a record less than the committed ones. `head` covers the chunk's header, and
// the file header's crc32c covers its constant fields. Everything in here that a reader takes on
// trust is said twice or summed up, but for the last records of a thread that was killed.
namespace vramscope::format {

inline constexpr char kFileMagic[8] = {'V', 'R', 'A', 'M', 'L', 'I', 'V', 'E'};
// Every file begins with the first of these bytes, so that its kind is known; the others follow
// once the header is complete.
inline constexpr size_t kEarlyMagicBytes = 4;
inline constexpr uint16_t kMajorVersion = 1;
inline constexpr uint16_t kMinorVersion = 9;
inline constexpr uint32_t kChunkMagic = 0x4b435356;  // "VSCK"
inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kFirstChunkBytes = 64 * 1024;
inline constexpr size_t kChunkBytes = 256 * 1024;
inline constexpr size_t kMaxBlobBytes = 32 * 1024;
// Deeper scopes count as the one around them.
inline constexpr uint32_t kMaxScopeDepth = 64;
// A stream seals what it has written when its records have grown by an eighth of its chunk or by
// this many bytes, when its thread ends, and when the process begins to end.
inline constexpr size_t kSealEveryBytes = 1024;

// A process that could not make its file leaves a symbolic link with this ending to the number of
// the error (errno), in the same directory.
inline constexpr char kUnrecordedExtension[] = ".unrecorded";
// The launcher's own file, in the same directory.
inline constexpr char kLauncherFile[] = "launcher.vrl";
inline constexpr char kSessionFile[] = "session.json";
// The names of the live files of the directory, a line each. A process adds its file's name once
// the header is whole, so that a reader can tell which files are missing.
inline constexpr char kManifestFile[] = "manifest";
inline constexpr char kManifestStart[] = "vramscope manifest 1\n";

// The part of PID.T.vrl's past that a ring keeps, in the same directory and the same format.
inline constexpr char kPastExtension[] = ".past";
// The cells of a notebook, written by the Python package (docs/FORMAT.md).
inline constexpr char kCellsExtension[] = ".cells";
inline constexpr char kCellsStart[] = "vramscope cells 1\n";
// The stream of a past file that describes what the file replaces. All other streams are the live
// file's.
inline constexpr uint32_t kPastStream = UINT32_MAX;

enum class WriterKind : uint16_t { kProbe = 0, kLauncher = 1, kPast = 2 };

enum FileFlags : uint32_t {
  kTicksAreTsc = 1u << 0,    // if not set, ticks are CLOCK_MONOTONIC nanoseconds
  kClosedCleanly = 1u << 1,  // the writer said goodbye
  kForked = 1u << 2,         // a copy of its parent, without exec since
};
// Flags as the header stores them: the upper half is the complement of the lower half.
constexpr uint32_t CheckedFlags(uint32_t flags) {
  return (flags & 0xffff) | (~flags << 16);
}

inline constexpr size_t kLossSlots = 32;

// Whether a process waits for the report of its first out-of-memory. The launcher, which says it,
// puts kReported in the place of kAwaited.
enum ReportWait : uint32_t { kNotAwaited = 0, kAwaited = 1, kReported = 2 };

struct FileHeader {
  char magic[8];
  uint16_t major;
  uint16_t minor;
  uint16_t writer;        // WriterKind
  uint16_t header_bytes;  // offset of the first chunk
  std::atomic<uint32_t> flags;
  uint32_t pid;
  uint32_t parent_pid;
  uint32_t crc32c;                     // HeaderChecksum(); 0 before minor version 3
  uint64_t start_ticks;                // one instant on both clocks, and on the wall
  int64_t start_ns;                    // CLOCK_MONOTONIC
  int64_t start_wall_ns;               // CLOCK_REALTIME
  std::atomic<uint64_t> anchor_ticks;  // before minor version 3: a later instant
  std::atomic<int64_t> anchor_ns;
  std::atomic<uint64_t> end_bytes;         // chunks were claimed up to this file offset
  std::atomic<uint64_t> lost[kLossSlots];  // by Loss, for what could not be written as a record
  char command[2048];                      // NUL-separated argv, cut if longer
  char executable[1024];                   // NUL-terminated
  // From minor version 3 on.
  std::atomic<uint64_t> lost_again[kLossSlots];  // `lost` once more, counted after it
  std::atomic<uint64_t> chunk_count;             // chunks whose header was whole
  // In the launcher's file: what processes lost that could not make a file of their own.
  std::atomic<uint64_t> lost_by_others[kLossSlots];
  // Requests for device memory that the driver refused, and requests that a caching allocator gave
  // up. For the launcher and other observers. Records say more.
  std::atomic<uint64_t> refused, gave_up;
  std::atomic<uint32_t> report;  // ReportWait
};
static_assert(sizeof(FileHeader) <= kPageBytes);
static_assert(offsetof(FileHeader, lost) == 80);
static_assert(offsetof(FileHeader, lost_again) == 3408);

struct ChunkHeader {
  uint32_t magic;
  uint32_t size_bytes;  // of the whole chunk, this header included; `head` repeats it
  uint32_t stream;      // which thread's writer, from 1
  uint32_t sequence;    // 0, 1, 2, ... within the stream
  uint64_t base_ticks;  // first value of the time delta, and an anchor with base_ns
  int64_t base_ns;
  std::atomic<uint32_t> committed_bytes;  // of records after this header
  std::atomic<uint32_t> sealed;           // 1: nothing more comes, crc32c covers all records
  uint32_t crc32c;
  uint32_t tid;  // the thread when the chunk was begun
  // From minor version 3 on.
  std::atomic<uint64_t> seal;  // bytes of records that it covers, from the first; << 32: their CRC
  std::atomic<uint64_t> head;  // ChunkHead()
};
static_assert(sizeof(ChunkHeader) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// CRC-32C of what does not change in the header at `header`; never 0.
uint32_t HeaderChecksum(const uint8_t* header);

// A chunk's size, and << 32 the CRC-32C of its header with that size: all that does not change but
// with the size. Never 0.
uint64_t ChunkHead(const uint8_t* chunk, uint32_t size_bytes);

constexpr uint32_t LowHalf(uint64_t word) {
  return static_cast<uint32_t>(word);
}
constexpr uint32_t HighHalf(uint64_t word) {
  return static_cast<uint32_t>(word >> 32);
}
constexpr uint64_t Halves(uint32_t low, uint32_t high) {
  return uint64_t{high} << 32 | low;
}

// A chunk's seal, extended to the first `bytes` of the records at `records`.
uint64_t ExtendSeal(uint64_t seal, const uint8_t* records, uint32_t bytes);

// An empty file in the live directory whose name is the id of the recording: the directory's own
// name may come again. Shells that record into one directory have an id each.
inline constexpr char kSessionExtension[] = ".session";

// The variables that hold a process's rank in a distributed program. The first that is set counts:
// torchrun's (the others may have started torchrun), then those of Open MPI, MPICH and Intel MPI,
// MVAPICH, PMIx and Slurm.
inline constexpr const char* kRankVariables[] = {
    "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"};

// A process's place among the others, as `key=value` pairs in one note: where its host has several
// names or runs several processes. The first variable that is set counts: torchrun's, then those of
// Open MPI, Intel MPI, MVAPICH and Slurm; for names, those that Kubernetes' documentation gives to
// the downward API.
struct PlaceVariables {
  const char* key;
  const char* variables[5];  // as many as there are, then null
};
inline constexpr char kPlaceNote[] = "place";
inline constexpr PlaceVariables kPlaceVariables[] = {
    {"local_rank",
     {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK",
      "SLURM_LOCALID"}},
    {"group_rank", {"GROUP_RANK", "SLURM_NODEID"}},
    {"node", {"NODE_NAME", "MY_NODE_NAME", "SLURMD_NODENAME"}},
    {"pod", {"POD_NAME", "MY_POD_NAME"}},
};
// The rank that torch.distributed gave the process, if it is one of several.
inline constexpr char kTorchRankNote[] = "rank of torch.distributed";

}  // namespace vramscope::format
