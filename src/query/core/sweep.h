// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "query/core/change_stream.h"
#include "query/core/sweep_ledger.h"
#include "query/dimensions/cells.h"
#include "tables/recording.h"
#include "util/on_threads.h"
#include "util/status.h"

namespace vramscope::query {

// The last instant that anything is known of.
int64_t LastInstant(const tables::Recording& recording);

// Calls `observer` for every change of the ledger within `span`, in order of time. If the span has
// a begin, what is live there moves in first.
template <SweepObserver Observer>
util::Status Sweep(const tables::Recording& recording,
                   const Cells& cells,
                   TimeSpan span,
                   Observer* observer) {
  if (span.from_ns >= span.to_ns)
    return {};
  SweepLedger ledger(recording, cells, observer);
  const bool has_begin = span.from_ns != INT64_MIN;
  if (has_begin)
    VRAMSCOPE_RETURN_IF_ERROR(ledger.Load(recording, span.from_ns));
  std::vector<SlowChange> slow = SlowChangesIn(recording.tables(), span);
  slow.push_back({INT64_MAX});
  auto next_slow = slow.begin();
  ChangeStream stream(recording, span);
  // Only a span with a begin has a state before its first change.
  int64_t stands_since_ns = has_begin ? span.from_ns + 1 : INT64_MAX;
  const auto come_to = [&](int64_t time_ns) {
    if (stands_since_ns < time_ns)
      observer->OnState(stands_since_ns, time_ns - 1);
    else if (stands_since_ns != INT64_MAX)
      return;  // out of a damaged frame, too late
    stands_since_ns = time_ns;
  };
  const auto apply_slow = [&](int64_t time_ns) {
    for (; next_slow->time_ns <= time_ns && next_slow->time_ns != INT64_MAX; ++next_slow)
      ledger.Apply(*next_slow);
  };
  // No instant is cut by windows.
  for (;;) {
    VRAMSCOPE_ASSIGN_OR_RETURN(const auto window, stream.Next());
    for (auto change = window.begin(); change != window.end();) {
      const int64_t time_ns = std::min(change->time_ns, next_slow->time_ns);
      come_to(time_ns);
      for (; change != window.end() && change->time_ns <= time_ns; ++change)
        ledger.Apply(*change);
      apply_slow(time_ns);
    }
    if (window.empty())
      break;
  }
  while (next_slow->time_ns != INT64_MAX) {
    const int64_t time_ns = next_slow->time_ns;
    come_to(time_ns);
    apply_slow(time_ns);
  }
  const int64_t last_ns = span.to_ns != INT64_MAX ? span.to_ns : LastInstant(recording);
  if (stands_since_ns != INT64_MAX)
    observer->OnState(stands_since_ns, std::max(stands_since_ns, last_ns));
  return {};
}

// Pieces of a span, in order, one for each thread that looking at its changes is worth.
std::vector<TimeSpan> PiecesOf(const tables::Recording& recording, TimeSpan span);

// The same with one thread a piece. Each piece has a copy of `observer`, which sees what is live at
// its begin and the changes in it, and nothing from before.
template <SweepObserver Observer>
util::Result<std::vector<Observer>> SweepPieces(const tables::Recording& recording,
                                                const Cells& cells,
                                                const std::vector<TimeSpan>& pieces,
                                                const Observer& observer) {
  std::vector<std::optional<Observer>> observers(pieces.size());
  VRAMSCOPE_RETURN_IF_ERROR(util::OnThreads(pieces.size(), [&](size_t piece) {
    // Made where it is used: two that share a cache line take half as long again.
    Observer own(observer);
    const util::Status status = Sweep(recording, cells, pieces[piece], &own);
    observers[piece].emplace(std::move(own));
    return status;
  }));
  std::vector<Observer> all;
  all.reserve(pieces.size());
  for (std::optional<Observer>& one : observers)
    all.push_back(std::move(*one));
  return all;
}

}  // namespace vramscope::query
