// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "query/cells.h"
#include "query/change_stream.h"
#include "query/sweep_ledger.h"
#include "tables/recording.h"
#include "util/on_threads.h"
#include "util/status.h"

namespace vramscope::query {

// The last instant that anything is known of.
int64_t LastInstant(const tables::Recording& recording);

// Tells `observer` every change of the ledger within `span`, in order of time. Where the span has a
// begin, what stands there already moves in first.
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
  const std::vector<SlowChange> slow = SlowChangesIn(recording.tables(), span);
  ChangeStream stream(recording, span);
  std::span<const Change> window;
  size_t at = 0;
  size_t slow_at = 0;
  bool any = has_begin;
  int64_t stands_since_ns = has_begin ? span.from_ns + 1 : 0;
  for (;;) {
    if (at == window.size()) {
      const auto next = stream.Next();
      if (!next.ok())
        return next.status();
      window = *next;
      at = 0;
    }
    int64_t time_ns = INT64_MAX;
    if (at < window.size())
      time_ns = window[at].time_ns;
    if (slow_at < slow.size())
      time_ns = std::min(time_ns, slow[slow_at].time_ns);
    if (time_ns == INT64_MAX)
      break;
    if (any && stands_since_ns < time_ns)
      observer->OnState(stands_since_ns, time_ns - 1);
    // No instant is cut by windows.
    for (; at < window.size() && window[at].time_ns <= time_ns; ++at)
      ledger.Apply(window[at]);
    for (; slow_at < slow.size() && slow[slow_at].time_ns <= time_ns; ++slow_at)
      ledger.Apply(slow[slow_at]);
    ledger.Settle();
    any = true;
    stands_since_ns = std::max(stands_since_ns, time_ns);
  }
  const int64_t last_ns = span.to_ns != INT64_MAX ? span.to_ns : LastInstant(recording);
  if (any)
    observer->OnState(stands_since_ns, std::max(stands_since_ns, last_ns));
  return {};
}

// Pieces of a span, in order, one for each thread that looking at its changes is worth.
std::vector<TimeSpan> PiecesOf(const tables::Recording& recording, TimeSpan span);

// The same on a thread for each piece: a copy of `observer` for each is told what changes in it,
// and therefore knows nothing of what came before but what stands when its piece begins.
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
