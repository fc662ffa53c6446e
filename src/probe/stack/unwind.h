// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// Native stacks of the calling thread. On x86-64 the binaries' own unwinding tables are read, and
// what they say of an address is remembered, so that a known stack costs some nanoseconds a frame;
// elsewhere the C library's backtrace() is asked.
//
// Nothing is allocated. No lock is taken, but the loader's for a moment: where the C library is
// older than 2.35, at addresses that are new, and in ObserveDlopenForStacks().
namespace vramscope::probe {

inline constexpr size_t kMaxNativeDepth = 96;

enum class WalkEnd {
  kOutermost,   // where the thread began
  kDepthLimit,  // there are more frames than were asked for
  kLost,        // code without unwinding information, or damaged
};

struct NativeWalk {
  size_t depth;
  WalkEnd end;
};

// Writes the return addresses from the caller on outwards, `capacity` at most.
NativeWalk WalkNativeStack(uintptr_t* pcs, size_t capacity);

// Grows when a walk comes to a binary for the first time, or that may have been replaced.
uint64_t SeenBinaries();

// Once, when this library is loaded.
void LoadNativeStacks();
// Just before a library is loaded.
void ObserveDlopenForStacks();

}  // namespace vramscope::probe
