// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "probe/stack/python_api.h"

// Python's garbage collector counts allocations, and collects when there were enough. What the
// probe allocates must not count: collections would come earlier than without it.
namespace vramscope::probe {

// Finds the counts, once, in the memory of the interpreter, and proves them by an allocation. The
// calling thread holds the GIL. Where they cannot be found a CollectorPause does nothing.
void CollectorPrepare();

// The calling thread is the only one of a forked child.
void CollectorForked();

// While one lives nothing is collected; afterwards the counts are as before. They nest. The thread
// that makes one holds the GIL, and holds it again at its end.
class CollectorPause {
 public:
  CollectorPause();
  ~CollectorPause();
  CollectorPause(const CollectorPause&) = delete;
  CollectorPause& operator=(const CollectorPause&) = delete;

 private:
  bool outermost_ = false;
};

// Releases the object within a later pause: its end must not count either.
void ReleaseLater(Object object);

}  // namespace vramscope::probe
