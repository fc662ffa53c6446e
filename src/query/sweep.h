// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "query/cells.h"
#include "query/change_stream.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// Follows the ledger through time.
class SweepObserver {
 public:
  virtual ~SweepObserver() = default;
  // The bytes of a cell (of the Cells given) change. Those of one instant come together.
  virtual void OnMove(uint32_t cell, int64_t bytes) = 0;
  // So it stands now, from the instant of the last changes to the one before the next. These
  // stretches cover the span without a gap, from the first change in it where it has no begin.
  virtual void OnState(int64_t first_ns, int64_t last_ns) = 0;
};

// Tells `observer` every change of the ledger within `span`, in order of time. Where the span has a
// begin, what stands there already moves in first.
util::Status Sweep(const tables::Recording& recording,
                   const Cells& cells,
                   TimeSpan span,
                   SweepObserver* observer);

// Pieces of a span, in order, one for each thread that looking at its changes is worth.
std::vector<TimeSpan> PiecesOf(const tables::Recording& recording, TimeSpan span);

// The same on a thread for each piece: what changes in pieces[i] is told to *observers[i], which
// therefore knows nothing of what came before but what stands when its piece begins.
util::Status SweepPieces(const tables::Recording& recording,
                         const Cells& cells,
                         const std::vector<TimeSpan>& pieces,
                         const std::vector<SweepObserver*>& observers);

template <class Observer>
std::vector<SweepObserver*> ObserversOf(std::vector<Observer>& observers) {
  std::vector<SweepObserver*> pointers;
  for (Observer& observer : observers)
    pointers.push_back(&observer);
  return pointers;
}

// The last instant that anything is known of.
int64_t LastInstant(const tables::Recording& recording);

}  // namespace vramscope::query
