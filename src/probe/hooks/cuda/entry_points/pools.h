// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "probe/session/slot_table.h"

// Memory pools: what a pool holds is what the device misses, whatever the program has of it.
namespace vramscope::probe::cuda {

// Whether some pool may have shrunk in a call that synchronised.
bool MayPoolsShrink();
// A pool gives memory back at calls that synchronise: reads every pool that may have. Also when a
// capture has ended: what could not be read meanwhile is read then.
void ReadPoolsAfterSynchronisation();
// A call in which a pool may give memory back, until the pools have been read after it. Another
// thread that reads a pool meanwhile may see what this call did: it dates that from the first such
// call.
class ShrinkingCall {
 public:
  explicit ShrinkingCall(bool may_shrink = MayPoolsShrink()) : is_noted_(may_shrink) {
    if (is_noted_)
      Begin();
  }
  ~ShrinkingCall() {
    if (is_noted_)
      End();
  }
  ShrinkingCall(const ShrinkingCall&) = delete;
  ShrinkingCall& operator=(const ShrinkingCall&) = delete;

 private:
  static void Begin();
  static void End();

  const bool is_noted_;
};
// A capture was noted and is about to begin: returns when all questions about pools have ended, or
// after a bounded time.
void WaitForPoolReaders();

// The last context of the device is gone. Its default pool is still there, and is asked what it
// kept; the handles of other pools may not be valid any more.
void ReadPoolsWithoutContext(int32_t device);
void ForgetPools(OtherThreads others);

// ---- memory that graphs allocate for themselves
// Their addresses say nothing of bytes; the device's graph memory is read instead.

// An allocation node gave this address, by capture or by hand.
void NoteGraphAddress(uint64_t address);
// Whether `address` is a graph's. An address that was freed, or given out anew, is not any more.
bool TakeGraphAddress(uint64_t address);
// Some graph of this process allocates memory.
bool HasGraphMemory();

// Reads the device's graph memory, written as pool 0.
void ReadGraphPool(int32_t device);
void ForgetGraphs(OtherThreads others);

}  // namespace vramscope::probe::cuda
