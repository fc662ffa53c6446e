// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "format/enums.h"
#include "resolve/attribute/origin.h"
#include "resolve/attribute/owners.h"
#include "resolve/attribute/parts.h"
#include "tables/ids.h"
#include "trace/event.h"
#include "util/containers/address_ranges.h"

// What the ledger keeps of everything live.
namespace vramscope::resolve {

inline constexpr uint32_t kNoIndex = UINT32_MAX;
inline constexpr int64_t kNever = INT64_MAX;

// A block that a caching allocator gave to the program, or a CPU tensor's storage.
struct Block {
  uint64_t address = 0;  // 0: there is none
  uint64_t size = 0;
  int64_t alloc_ns = 0;
  tables::StackId stack;
  tables::StackId native;
  tables::ThreadId thread;
  uint32_t segment = 0;  // where it was cut out of
  Origin origin;
  OwnerId owner;
  bool has_stretches = false;  // memory was missing below it at some time
  bool live() const { return address != 0; }
};

// A part of a block's life in which the same of its bytes have device memory below them; it ends
// where the next one begins.
struct Stretch {
  int64_t begin_ns = 0;
  uint64_t unbacked_bytes = 0;
  bool unbacked_tail = false;  // its last byte is one of them
};
using Stretches = std::vector<Stretch>;

enum class ObjectKind : uint8_t {
  kMemory,   // what an Alloc event gave
  kHandle,   // physical memory of cuMemCreate
  kMapping,  // a handle at an address: no bytes of its own
};

// Who said which communicator memory belongs to: a range of the thread that allocated it, or, of a
// thread of NCCL's own, what another thread was at.
enum class Claim : uint8_t { kNone, kOfOther, kOfOwn };

// Anything that the driver gave, and a mapping.
struct DriverObject {
  uint64_t address = 0;  // or the handle
  uint64_t size = 0;     // asked for
  uint64_t priced = 0;   // what it takes of the device
  int64_t alloc_ns = 0;
  int64_t row_ns = 0;   // since when all about it is as it is now
  uint64_t number = 0;  // no other one ever has it; 0: there is none
  uint64_t stream = 0;
  uint64_t context = 0;
  uint64_t accounted =
      0;  // mapping: bytes of the handle that count in its segment; handle: their sum
  uint64_t accounted_from = 0;  // mapping: where they begin in it
  uint64_t backing_bytes = 0;   // handle: of them in segments that are suballocated
  tables::StackId stack;
  tables::StackId native;
  tables::ThreadId thread;
  tables::StringId api;
  uint32_t account = kNoIndex;
  uint32_t segment = kNoIndex;  // the segment that it is, that it is mapped into, or its pool's
  uint32_t handle = kNoIndex;   // of a mapping: the handle's object
  uint32_t references = 1;      // handles: those not released yet
  uint32_t mappings = 0;        // handles: live mappings
  Origin origin;
  OwnerId owner;
  ObjectKind kind = ObjectKind::kMemory;
  format::MemoryKind memory = format::MemoryKind::kDevice;
  uint32_t share = kNoIndex;  // the memory that several processes hold, of which it is one's part
  uint32_t stands_for = 0;  // the host's memory in place of this device's, by its row; 0: it is not
  uint32_t array = kNoIndex;  // its number among the arrays of its device: `priced` is an estimate
  uint32_t managed = kNoIndex;  // its number among managed allocations
  bool small = false;           // shares a 2 MiB slab
  bool backing = false;         // its segment is suballocated
  bool is_prior = false;        // made before the recording, by a call that nobody saw
  Claim communicator = Claim::kNone;
  bool live() const { return number != 0; }
};

enum class SegmentKind : uint8_t {
  kNone,
  kDefault,      // what is in no segment that we know: CPU tensors, or a GPU without driver events
  kAllocation,   // one cuMemAlloc
  kReservation,  // an address range with handles mapped into it
  kPool,         // a stream-ordered pool: its bytes come from readings
};

// Memory that an allocator cuts blocks out of.
struct Segment {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t held = 0;        // bytes backed by memory
  uint64_t live_bytes = 0;  // of its blocks, that device memory is mapped below
  uint64_t live_count = 0;
  uint64_t unbacked_bytes = 0;             // of its blocks, without
  std::unique_ptr<util::RangeSet> backed;  // of kReservation: its addresses that have device memory
  tables::SegmentId row;
  uint32_t account = kNoIndex;
  uint32_t object = kNoIndex;        // of kAllocation
  uint32_t held_counter = kNoIndex;  // of pools: what says what they hold
  uint32_t stands_for = 0;           // as of DriverObject
  uint32_t names = 0;                // of a pool, or of the private pool it is in: a set of Names
  SegmentKind kind = SegmentKind::kNone;
  OwnerId owner;
  bool suballocated = false;  // blocks were cut out of it
  bool unplaced = false;      // by a thread without Python: its first block says what for
  bool of_program = false;    // by the program's own pool, not by a framework
  bool is_private = false;    // in a private pool of PyTorch's
  bool zombie = false;        // its memory is gone, but blocks in it were never freed
  bool closing = false;       // a destroyed pool: its memory goes with the last of its blocks
  bool live() const { return kind != SegmentKind::kNone; }
  // Held by the allocator and in no live block.
  uint64_t free_bytes() const { return suballocated && held > live_bytes ? held - live_bytes : 0; }
};

}  // namespace vramscope::resolve
