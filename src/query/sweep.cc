// SPDX-License-Identifier: Apache-2.0
#include "query/sweep.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "query/live_set.h"
#include "query/parallel.h"

namespace vramscope::query {
namespace {

// A change that is no row of `allocations`.
struct SlowChange {
  enum class Kind : uint8_t { kStep, kCheckpointed, kRestored };
  int64_t time_ns = 0;
  Kind kind = Kind::kStep;
  uint32_t index = 0;  // of the counter or the account
  int64_t bytes = 0;
};

std::vector<SlowChange> SlowChangesIn(const tables::Tables& tables, TimeSpan span) {
  using Kind = SlowChange::Kind;
  std::vector<SlowChange> changes;
  const auto add = [&](SlowChange change) {
    if (change.time_ns > span.from_ns && change.time_ns <= span.to_ns &&
        change.time_ns != tables::kNever)
      changes.push_back(change);
  };
  for (const tables::StepRow& step : tables.steps) {
    if (step.counter.value < tables.counters.size())
      add({step.time_ns, Kind::kStep, step.counter.value, step.bytes});
  }
  for (const tables::CheckpointRow& row : tables.checkpointed) {
    if (row.account.value >= tables.accounts.size() || row.begin_ns >= row.end_ns)
      continue;
    add({row.begin_ns, Kind::kCheckpointed, row.account.value, 0});
    add({row.end_ns, Kind::kRestored, row.account.value, 0});
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
  return changes;
}

// The ledger at the instant that a sweep has come to.
class Ledger {
 public:
  Ledger(const tables::Recording& recording, const Cells& cells, SweepObserver* observer)
      : tables_(recording.tables()),
        cells_(cells),
        observer_(observer),
        bytes_(cells.all().size()),
        checkpointed_(tables_.accounts.size()),
        segments_(tables_.segments.size()),
        counters_(tables_.counters.size()) {
    for (const Cell& cell : cells.all())
      account_of_.push_back(cell.account.value);
    for (const tables::SiteRow& site : tables_.sites)
      backing_.push_back(site.backing != 0 ? 1 : 0);
  }

  // What stands at an instant, of all accounts.
  util::Status Load(const tables::Recording& recording, int64_t time_ns) {
    for (const tables::CheckpointRow& row : tables_.checkpointed) {
      if (row.account.value < checkpointed_.size() && row.begin_ns <= time_ns &&
          time_ns < row.end_ns) {
        ++checkpointed_[row.account.value];
        ++away_;
      }
    }
    const auto live = ReadLiveSetWithCheckpointed(recording, AllAt(tables_, time_ns));
    if (!live.ok())
      return live.status();
    for (uint32_t i = 0; i < live->sites.size(); ++i) {
      Move(cells_.OfSite(i), static_cast<int64_t>(live->sites[i].bytes));
      Move(cells_.OfRounding(i), static_cast<int64_t>(live->sites[i].rounding_bytes));
    }
    for (uint32_t i = 1; i < live->segments.size(); ++i) {
      segments_[i].held_bytes = live->segments[i].held_bytes;
      segments_[i].used_bytes = static_cast<int64_t>(live->segments[i].used_bytes);
      segments_[i].used_count = static_cast<int64_t>(live->segments[i].used_count);
      Touch(i);
    }
    for (uint32_t i = 1; i < live->counters.size(); ++i) {
      if (tables_.counters[i].segment.value == 0)
        Step(i, live->counters[i]);
    }
    Settle();
    return {};
  }

  void Apply(const Change& change) {
    const int64_t sign = change.ends != 0 ? -1 : 1;
    const int64_t bytes = sign * static_cast<int64_t>(change.bytes);
    const bool backing = backing_[change.site] != 0;
    // Out of what the row itself has.
    const int64_t own = change.is_rounding != 0 ? -bytes : bytes;
    if (change.is_rounding != 0)
      Move(cells_.OfRounding(change.site), bytes);
    if (backing) {
      segments_[change.segment].held_bytes += own;
      Touch(change.segment);
      return;
    }
    Move(cells_.OfSite(change.site), own);
    if (change.segment == 0 || change.is_rounding != 0)
      return;
    segments_[change.segment].used_bytes += bytes;
    segments_[change.segment].used_count += sign;
    Touch(change.segment);
  }

  void Apply(const SlowChange& change) {
    if (change.kind == SlowChange::Kind::kStep) {
      const uint32_t segment = tables_.counters[change.index].segment.value;
      if (segment == 0 || segment >= segments_.size()) {
        Step(change.index, change.bytes);
      } else {
        segments_[segment].held_bytes += change.bytes;
        Touch(segment);
      }
      return;
    }
    // Times of one account may overlap.
    const bool away = change.kind == SlowChange::Kind::kCheckpointed;
    uint32_t& times = checkpointed_[change.index];
    const uint32_t before = times;
    times = away ? times + 1 : times - std::min<uint32_t>(times, 1);
    if ((before == 0) == (times == 0))
      return;
    away_ += away ? 1 : 0;
    for (uint32_t cell = 0; cell < bytes_.size(); ++cell) {
      if (account_of_[cell] == change.index && bytes_[cell] != 0)
        observer_->OnMove(cell, away ? -bytes_[cell] : bytes_[cell]);
    }
  }

  // Behind the last change of an instant: free bytes follow from what happened to their segments.
  void Settle() {
    for (const uint32_t index : touched_) {
      Segment& segment = segments_[index];
      segment.touched = false;
      const int64_t free = std::max<int64_t>(0, segment.held_bytes - segment.used_bytes);
      const uint32_t cell = cells_.OfFree(index, segment.used_count > 0);
      if (free == segment.free_bytes && cell == segment.cell)
        continue;
      if (cell == segment.cell) {
        Move(cell, free - segment.free_bytes);
      } else {
        Move(segment.cell, -segment.free_bytes);
        Move(cell, free);
      }
      segment.free_bytes = free;
      segment.cell = cell;
    }
    touched_.clear();
  }

 private:
  struct Segment {
    int64_t held_bytes = 0;
    int64_t used_bytes = 0;
    int64_t used_count = 0;
    int64_t free_bytes = 0;  // as moved
    uint32_t cell = 0;       // that has them
    bool touched = false;
  };

  void Move(uint32_t cell, int64_t bytes) {
    if (bytes == 0)
      return;
    bytes_[cell] += bytes;
    if (away_ == 0 || checkpointed_[account_of_[cell]] == 0)
      observer_->OnMove(cell, bytes);
  }
  void Touch(uint32_t segment) {
    if (segment == 0 || segments_[segment].touched)
      return;
    segments_[segment].touched = true;
    touched_.push_back(segment);
  }
  void Step(uint32_t counter, int64_t bytes) {
    const uint32_t site = tables_.counters[counter].site.value;
    const int64_t before = counters_[counter];
    counters_[counter] += bytes;
    Move(cells_.OfSite(site < tables_.sites.size() ? site : 0),
         std::max<int64_t>(counters_[counter], 0) - std::max<int64_t>(before, 0));
  }

  const tables::Tables& tables_;
  const Cells& cells_;
  SweepObserver* observer_;
  std::vector<int64_t> bytes_;  // by cell, checkpointed or not
  std::vector<uint32_t> account_of_;
  std::vector<uint32_t> checkpointed_;  // by account: how many times it is
  uint32_t away_ = 0;                   // accounts that are, at most
  std::vector<Segment> segments_;
  std::vector<int64_t> counters_;
  std::vector<uint32_t> touched_;
  std::vector<uint8_t> backing_;
};

}  // namespace

util::Status Sweep(const tables::Recording& recording,
                   const Cells& cells,
                   TimeSpan span,
                   SweepObserver* observer) {
  if (span.from_ns >= span.to_ns)
    return {};
  Ledger ledger(recording, cells, observer);
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

std::vector<TimeSpan> PiecesOf(const tables::Recording& recording, TimeSpan span) {
  // Where a frame's rows begin, in quarters: half of all that changes.
  std::vector<std::pair<int64_t, uint64_t>> begins;
  uint64_t rows = 0;
  int64_t first_ns = INT64_MAX;
  for (size_t i = 0; i < recording.frame_count(); ++i) {
    const tables::FrameZone& zone = recording.zone(i);
    if (zone.rows == 0 || zone.min_begin_ns > span.to_ns || zone.max_end_ns <= span.from_ns)
      continue;
    rows += zone.rows;
    first_ns = std::min(first_ns, zone.min_begin_ns);
    const auto width =
        static_cast<uint64_t>(zone.max_begin_ns) - static_cast<uint64_t>(zone.min_begin_ns);
    for (uint64_t quarter = 0; quarter < 4; ++quarter) {
      const uint64_t offset = width / 8 * (2 * quarter + 1);
      begins.emplace_back(static_cast<int64_t>(static_cast<uint64_t>(zone.min_begin_ns) + offset),
                          zone.rows / 4);
    }
  }
  std::sort(begins.begin(), begins.end());
  const size_t workers = WorkersFor(rows);
  std::vector<TimeSpan> pieces;
  TimeSpan piece = span;
  uint64_t sum = 0;
  for (const auto& [time_ns, count] : begins) {
    sum += count;
    // Something is there from the first piece on: a sweep begins with its first change.
    if (sum < rows / workers * (pieces.size() + 1) || pieces.size() + 1 == workers ||
        time_ns < first_ns || time_ns <= piece.from_ns || time_ns >= span.to_ns)
      continue;
    piece.to_ns = time_ns;
    pieces.push_back(piece);
    piece = {time_ns, span.to_ns};
  }
  pieces.push_back(piece);
  return pieces;
}

util::Status SweepPieces(const tables::Recording& recording,
                         const Cells& cells,
                         const std::vector<TimeSpan>& pieces,
                         const std::vector<SweepObserver*>& observers) {
  return OnThreads(pieces.size(), [&](size_t piece) {
    return Sweep(recording, cells, pieces[piece], observers[piece]);
  });
}

int64_t LastInstant(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  int64_t last_ns = tables.session.end_ns;
  const auto see = [&](int64_t time_ns) {
    if (time_ns != tables::kNever)
      last_ns = std::max(last_ns, time_ns);
  };
  for (size_t i = 0; i < recording.frame_count(); ++i) {
    see(recording.zone(i).max_begin_ns);
    see(recording.zone(i).max_end_ns);
  }
  if (!tables.steps.empty())
    see(tables.steps.back().time_ns);
  for (const tables::ProcessRow& process : tables.processes)
    see(process.end_ns);
  return last_ns;
}

}  // namespace vramscope::query
