// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "format/enums.h"
#include "resolve/attribute/owners.h"
#include "resolve/attribute/stack_facts.h"
#include "tables/ids.h"
#include "trace/event.h"
#include "util/containers/address_ranges.h"

// Records of live memory.
namespace vramscope::resolve {

inline constexpr uint32_t kNoIndex = UINT32_MAX;
inline constexpr int64_t kNever = INT64_MAX;

// A live block of a caching allocator, or a CPU tensor's storage.
struct Block {
  uint64_t address = 0;  // 0: unused entry
  uint64_t size = 0;
  int64_t alloc_ns = 0;
  tables::StackId stack;
  tables::StackId native;
  tables::ThreadId thread;
  uint32_t segment = 0;  // contains the block
  Origin origin;
  Owner owner = Owner::kNone;
  bool has_stretches = false;  // part of it had no device memory at some time
  bool of_graph = false;       // a GraphTensor: its allocator counts the memory as free
  bool live() const { return address != 0; }
};

// A period of a block's life with the same bytes backed by device memory. It ends where the next
// one begins.
struct Stretch {
  int64_t begin_ns = 0;
  uint64_t unbacked_bytes = 0;
  bool unbacked_tail = false;  // its last byte is unbacked
};
using Stretches = std::vector<Stretch>;

enum class ObjectKind : uint8_t {
  kMemory,   // from an Alloc event
  kHandle,   // physical memory from cuMemCreate
  kMapping,  // a handle at an address; has no bytes itself
};

// How memory's communicator is known: by a range of the allocating thread or, for NCCL's own
// threads, by what another thread did meanwhile.
enum class Claim : uint8_t { kNone, kOfOther, kOfOwn };

// Any memory from the driver, or a mapping.
struct DriverObject {
  uint64_t address = 0;  // or the handle
  uint64_t size = 0;     // asked for
  uint64_t priced = 0;   // bytes that it takes of the device
  int64_t alloc_ns = 0;
  int64_t row_ns = 0;   // begin of its current row
  uint64_t number = 0;  // unique for good; 0: none
  uint64_t stream = 0;
  uint64_t context = 0;
  uint64_t accounted =
      0;  // mapping: bytes of the handle that count in its segment; handle: their sum
  uint64_t accounted_from = 0;  // mapping: where those bytes begin in it
  uint64_t backing_bytes = 0;   // handle: of these, in divided segments
  tables::StackId stack;
  tables::StackId native;
  tables::ThreadId thread;
  tables::StringId api;
  uint32_t account = kNoIndex;
  uint32_t segment = kNoIndex;  // its own segment, the one it is mapped into, or its pool's
  uint32_t handle = kNoIndex;   // of a mapping: the handle's object
  uint32_t references = 1;      // handles: not released yet
  uint32_t mappings = 0;        // handles: live mappings
  Origin origin;
  Owner owner = Owner::kNone;
  ObjectKind kind = ObjectKind::kMemory;
  format::MemoryKind memory = format::MemoryKind::kDevice;
  uint32_t share = kNoIndex;    // number in SharedMemory
  uint32_t maker = 0;           // row of the process that made this memory and left it; 0: none
  uint32_t stands_for = 0;      // host memory that replaces memory of this device (row); 0: none
  uint32_t array = kNoIndex;    // number among the device's arrays; `priced` is an estimate
  uint32_t managed = kNoIndex;  // number among managed allocations
  bool small = false;           // shares a 2 MiB slab
  bool backing = false;         // its segment is divided into blocks
  bool is_prior = false;        // allocated before recording
  bool of_pool = false;         // of XLA's pool, which was there before its first block
  Claim communicator = Claim::kNone;
  bool live() const { return number != 0; }
};

enum class SegmentKind : uint8_t {
  kNone,
  kDefault,      // blocks in no known segment: CPU tensors, or a GPU without driver events
  kAllocation,   // one cuMemAlloc
  kReservation,  // an address range with handles mapped into it
  kPool,         // a stream-ordered pool; readings give its bytes
};

// Memory that an allocator divides into blocks.
struct Segment {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t held = 0;        // bytes backed by memory
  uint64_t live_bytes = 0;  // of its blocks, with device memory
  uint64_t live_count = 0;
  uint64_t unbacked_bytes = 0;             // of its blocks, without device memory
  std::unique_ptr<util::RangeSet> backed;  // of kReservation: its addresses with device memory
  tables::SegmentId row;
  uint32_t account = kNoIndex;
  uint32_t object = kNoIndex;        // of kAllocation
  uint32_t held_counter = kNoIndex;  // of pools: the counter of held bytes
  uint32_t stands_for = 0;           // as of DriverObject
  uint32_t names = 0;                // of the pool or private pool: a set of Names
  uint32_t region = 0;               // a set of Names that its blocks have from the start
  SegmentKind kind = SegmentKind::kNone;
  Owner owner = Owner::kNone;
  bool suballocated = false;  // blocks were allocated in it
  bool unplaced = false;    // made by a thread without Python: its first block gives the call site
  bool of_program = false;  // of the program's own pool, not of a framework
  bool by_size = false;     // the addresses of its blocks are unknown: XLA's pool
  bool is_private = false;  // in a private pool of PyTorch's
  bool zombie = false;      // its memory is freed, but blocks in it were not
  bool closing = false;     // a destroyed pool, freed with its last block
  bool live() const { return kind != SegmentKind::kNone; }
  // Held by the allocator, but not in a live block.
  uint64_t free_bytes() const { return suballocated && held > live_bytes ? held - live_bytes : 0; }
};

}  // namespace vramscope::resolve
