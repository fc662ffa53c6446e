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
// Before a call that synchronises, until the pools are read behind it. Another thread that reads a
// pool meanwhile may see what this call made it give back: it dates that from the first such call.
class Synchronising {
 public:
  Synchronising() : is_noted_(MayPoolsShrink()) {
    if (is_noted_)
      Begin();
  }
  ~Synchronising() {
    if (is_noted_)
      End();
  }
  Synchronising(const Synchronising&) = delete;
  Synchronising& operator=(const Synchronising&) = delete;

 private:
  static void Begin();
  static void End();

  const bool is_noted_;
};
// A capture was noted and is about to begin: returns when nobody asks about a pool any more, or
// after a bounded while.
void WaitForPoolReaders();

// The last context of the device is gone. Its default pool is still there, and is asked what it
// kept; the handles of other pools may not be valid any more.
void ReadPoolsWithoutContext(int32_t device);
void ForgetPools(OtherThreads others);

}  // namespace vramscope::probe::cuda
