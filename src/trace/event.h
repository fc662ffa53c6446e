// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "format/enums.h"
#include "util/strong_id.h"

// What a trace says, whichever form it has on disk: events in time order over tables of names.
namespace vramscope::trace {

// Index 0 of every table means "none" (the empty string, no stack, ...), except for processes and
// devices, which count from 0.
using StringId = util::StrongId<struct StringTag>;
using FrameId = util::StrongId<struct FrameTag>;
using StackId = util::StrongId<struct StackTag>;
using ThreadId = util::StrongId<struct ThreadTag>;
using ProcessId = util::StrongId<struct ProcessTag, uint16_t>;
using DeviceId = util::StrongId<struct DeviceTag, int16_t>;

inline constexpr ProcessId kNoProcess{0xffff};
inline constexpr DeviceId kNoDevice{-1};

// Same names and meaning as the records of format/records.def, less the definitions.
enum class EventKind : uint8_t {
  kBlockAlloc,
  kBlockFree,
  kAllocatorTotals,
  kOutOfMemory,
  kAlloc,
  kFree,
  kHandleCreate,
  kHandleRelease,
  kHandleRetain,
  kMap,
  kUnmap,
  kReserve,
  kUnreserve,
  kPoolCreate,
  kPoolDestroy,
  kPoolReading,
  kContextCreate,
  kContextDestroy,
  kImplicit,
  kReading,
  kFailure,
  kMark,
  kState,
  kTeardown,
  kProcessEnd,  // made by the reader: after it nothing of this process is live
  kDeviceSample,
  kProcessSample,
  kName,
  kModule,
  kModuleGone,
  kStep,
  kPrior,
  kShare,
  kCheckpoint,
  kPast,
  kCommunicator,
};

// Flag of a BlockAlloc: the program's own pool cut it (annotate.h), no framework's.
inline constexpr uint32_t kPoolOfProgram = 1;

// In Event::sequence of what allocates, from the past of a ring: what surrounded it is gone, and
// what it said of it stands here. The lower half is the forward stack.
inline constexpr uint64_t kHasOrigin = uint64_t{1} << 63;
constexpr uint64_t PackOrigin(uint64_t phase, uint64_t end, StackId forward) {
  return kHasOrigin | (phase & 0xff) << 40 | (end & 0xff) << 32 | forward.value;
}
constexpr bool HasOrigin(uint64_t sequence) {
  return (sequence & kHasOrigin) != 0;
}
constexpr uint8_t OriginPhase(uint64_t sequence) {
  return static_cast<uint8_t>(sequence >> 40);
}
constexpr uint8_t OriginEnd(uint64_t sequence) {
  return static_cast<uint8_t>(sequence >> 32);
}

// What Event::sequence numbers.
enum class Autograd : uint8_t {
  kNone = 0,
  kForward = 1,   // the node that the thread will make next
  kBackward = 2,  // the node that is being evaluated
};

// One event. Which field means what, by kind:
//
// clang-format off
//   kind             address   size       value          value2      detail       subkind / name
//   BlockAlloc       block     bytes      requested                               Autograd; number in sequence; name
//                                         (0: not said)                           flags: kPoolOfProgram
//   BlockFree        block     bytes
//   AllocatorTotals            allocated  reserved
//   OutOfMemory                requested  allocated      reserved
//   Alloc            address   bytes      actual         pool        stream       MemoryKind; extra in flags
//   Free             address                                         stream       MemoryKind
//   HandleCreate     handle    bytes      imported
//   HandleRelease    handle
//   HandleRetain     handle               address
//   Map              address   bytes      handle         offset
//   Unmap, Reserve,
//   Unreserve        address   bytes
//   PoolCreate       pool                                                         0 created, 1 default, 2 imported
//   PoolDestroy      pool
//   PoolReading      pool      reserved   used
//   ContextCreate,
//   ContextDestroy   context
//   Implicit                   detail     context                                 ImplicitKind; name = kernel, module
//   Reading                    free       total
//   Failure                    bytes      CUresult
//   Mark                                                                          name
//   State                      cpu_live (as int64_t)                              RecordingState
//   Teardown                                                                      TeardownKind
//   ProcessEnd                 wait status, or UINT64_MAX when not known
//   DeviceSample               used       free           reserved    total        repeats in flags
//   ProcessSample              used                                  pid          (process: where it is recorded)
//   Name             memory    requested  root module    offset      bytes        NameKind; name; api = the optimizer's name for its state
//   Module           object               root module                             name = path below root; api = class
//   ModuleGone       object
//   Step             optimizer                                                    StepKind; name = class
//   Prior            memory    bytes                                              PriorKind; name = whose it is
//   Share            memory    key        handle                                  ShareKind
//   Checkpoint                                                       pid          CheckpointKind; process: that of pid where it is recorded
//   Past                       iterations by_marks       knows
//   Communicator     id                   ranks          rank                     begin_ns: of the range (device: what the range said)
// clang-format on
struct Event {
  // Where the event stands in the order: for what gives memory back the begin of the call, for all
  // else its end. CLOCK_MONOTONIC nanoseconds.
  int64_t time_ns = 0;
  // The call under way: [begin_ns, end_ns]; both equal time_ns where there is no call.
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t value = 0;
  uint64_t value2 = 0;
  uint64_t detail = 0;
  uint64_t context = 0;
  uint64_t sequence = 0;
  StackId stack;         // Python stack, innermost frame
  StackId native_stack;  // native stack, innermost frame
  StringId api;          // the driver entry point, "" for tensor events
  StringId name;
  StringId scope;  // path of the program's own scopes around it, "outer/inner"
  ThreadId thread;
  uint32_t flags = 0;
  ProcessId process = kNoProcess;
  DeviceId device = kNoDevice;
  EventKind kind = EventKind::kMark;
  uint8_t subkind = 0;
  // Which record it is made of: the stream, counted through all files, and the record there.
  uint16_t source = 0;
  uint32_t record = 0;
};
static_assert(sizeof(Event) == 120, "a few million of them a second");

}  // namespace vramscope::trace
