// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Values that traces contain. Numbers are never reused; readers take an unknown one as "other".
namespace vramscope::format {

inline constexpr int32_t kCpuDevice = -1;
inline constexpr int32_t kHostDevice = -2;
inline constexpr int32_t kNoDevice = -3;

enum class MemoryKind : uint8_t {
  kDevice = 0,          // cuMemAlloc
  kPitched = 1,         // cuMemAllocPitch
  kAsync = 2,           // cuMemAllocAsync: cut out of a memory pool
  kManaged = 3,         // cuMemAllocManaged: no device bytes until touched
  kArray = 4,           // cuArrayCreate, cuMipmappedArrayCreate: size is opaque, `size` an estimate
  kHostPinned = 5,      // cuMemAllocHost, cuMemHostAlloc
  kHostRegistered = 6,  // cuMemHostRegister
  kIpcImport = 7,       // memory of another process, never added to a machine's total
  kExternal = 8,        // memory of a graphics client
  kOverflow = 9,        // the host's, where cuMemAlloc would have failed (run --overflow);
                        // device: whose memory it replaces
};

enum class ImplicitKind : uint8_t {
  kInit = 0,
  kContext = 1,
  kModule = 2,    // module or library load and unload: code and globals
  kFunction = 3,  // lazy code: cuModuleGetFunction, cuKernelGetFunction, cuLibraryGet*
  kLaunch = 4,    // first launch of a function: lazy code, local memory, heap, printf FIFO
  kLimit = 5,     // cuCtxSetLimit
  kStream = 6,
  kGraph = 7,  // instantiate, upload, launch, trim
  kEvent = 8,
  kPeer = 9,
  kOther = 10,
  kManaged = 11,  // pages of managed memory are moved: prefetch, advise, discard
};

enum class RecordingState : uint8_t { kPaused = 0, kRecording = 1, kStopped = 2 };

enum class TeardownKind : uint8_t { kPythonFinalisation = 0, kExit = 1, kMainReturned = 2 };

// The meaning of a Name record for the memory at an address.
enum class NameKind : uint8_t {
  kTag = 0,  // the program's own name for an allocation or block
  kParameter = 1,
  kGradient = 2,  // name: the parameter's
  kBuffer = 3,
  kOptimizerState = 4,  // name: the parameter's, detail: which state of it
  kPool = 5,            // the address is a memory pool's handle
  kPrivatePool = 6,     // of PyTorch's: the address is in one of its segments, name: its id
  kCommunicator = 7,    // never in a Name: a Communicator record names the owner
  kPath = 8,            // where it is in an argument of a JAX program: state.params['w'][0]
  kRegion = 9,          // torch_memory_saver's tag for what is mapped at the address
};

// How memory of XLA's pool was given out.
enum class XlaBlockKind : uint8_t {
  kOutput = 0,         // a program's result
  kFromHost = 1,       // copied from the host
  kCopy = 2,           // copied from another device or memory
  kUninitialized = 3,  // made without content
  kTemporary = 4,      // of a program while it runs; not a buffer
};

enum class PoolKind : uint8_t { kCreated = 0, kDefault = 1, kImported = 2 };

// The kind of thing that a Prior record describes.
enum class PriorKind : uint8_t {
  kSegment = 0,  // what a caching allocator holds, at an address
  kBlock = 1,    // what it has given out of such a segment
  kProcess = 2,  // all device memory of the process; name: who says so
  // An allocation of the driver that is about to be freed; it counts if nothing is known of it.
  kAllocation = 3,
};

enum class ShareKind : uint8_t { kExport = 0, kImport = 1 };

enum class CheckpointKind : uint8_t { kLock = 0, kCheckpoint = 1, kRestore = 2, kUnlock = 3 };

// ProcessExit::status of a process whose end was seen, but not by its parent.
inline constexpr uint64_t kStatusNotKnown = ~uint64_t{0};

enum class StepKind : uint8_t { kBegin = 0, kEnd = 1 };

// Whether memory outlived the time that its phase is about (docs/FORMAT.md, PastOrigin): it still
// lives and has not, it has, it was freed before.
enum class OriginEnd : uint8_t { kOpen = 0, kOutlived = 1, kWithin = 2 };

// How CPython stores a code object's line table.
enum class LineTableKind : uint8_t {
  kNone = 0,
  kLnotab = 1,     // up to 3.9: co_lnotab
  kPep626 = 2,     // 3.10: co_linetable, pairs of (code delta, line delta)
  kLocations = 3,  // from 3.11: co_linetable, Objects/locations.md
};

enum class Loss : uint32_t {
#define VRAMSCOPE_LOSS(Name, id, text, help) k##Name = id,
#include "format/losses.def"
};

// The name that reports show for a Loss; never null. Safe in the target.
const char* LossName(uint64_t loss);

}  // namespace vramscope::format
