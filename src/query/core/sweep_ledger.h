// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/compiler.h"
#include "query/core/change_stream.h"
#include "query/core/live_set.h"
#include "query/dimensions/cells.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// Follows the ledger through time. There is no base class, since it sees every change of a
// recording.
//   OnMove      The bytes of a cell (of the Cells given) change. Changes of one instant come
//   together. OnTransfer  Bytes go from one cell to another of its account, or back if negative.
//   Optional:
//               without it they come as two moves.
//   OnState     The state from the instant of the last changes to the one before the next. These
//               stretches cover the span without a gap. If the span has no begin, the first one
//               starts with the first change.
template <class T>
concept SweepObserver = requires(T& observer, uint32_t cell, int64_t number) {
  observer.OnMove(cell, number);
  observer.OnState(number, number);
};

// Base of an observer that sums cells up by item, such as a device, and looks at the items that
// changed. An Item has a member `bool changed`.
template <class Item>
class SweepSums {
 protected:
  // All bits of what counts, none of what does not: a branch would cost more.
  static constexpr int64_t MaskOf(bool counts) { return counts ? -1 : 0; }

  // After the last item was added.
  void StartUnchanged() { changed_.resize(items_.size()); }
  void StartChanged() {
    StartUnchanged();
    for (uint32_t i = 0; i < items_.size(); ++i)
      Changed(i);
  }
  void Changed(uint32_t index) {
    if (items_[index].changed)
      return;
    items_[index].changed = true;
    changed_[changed_count_++] = index;
  }
  // Calls look(item) for each item that changed. Where it returns false the item remains changed.
  template <class Look>
  void LookAtChanged(const Look& look) {
    size_t kept = 0;
    for (size_t i = 0; i < changed_count_; ++i) {
      Item& item = items_[changed_[i]];
      if (look(item))
        item.changed = false;
      else
        changed_[kept++] = changed_[i];
    }
    changed_count_ = kept;
  }

  std::vector<Item> items_;

 private:
  std::vector<uint32_t> changed_;
  size_t changed_count_ = 0;
};

// A change that comes from another table than `allocations`.
struct SlowChange {
  enum class Kind : uint8_t { kStep, kCheckpointed, kRestored };
  int64_t time_ns = 0;
  Kind kind = Kind::kStep;
  uint32_t index = 0;  // of the counter or the account
  int64_t bytes = 0;
};

// In order of time.
std::vector<SlowChange> SlowChangesIn(const tables::Tables& tables, TimeSpan span);

// The ledger at the instant that a sweep has come to.
//
//   Change, SlowChange -> bytes of each cell and segment -> OnMove, OnTransfer, OnState
//
// A cell is one of the sums that the observer distinguishes (query/dimensions/cells.h). Sweep()
// loads the state at the begin of a span, then applies every change in it. Sums are updated, never
// recounted. Tests compare them with ReadLiveSet() at random instants.
template <SweepObserver Observer>
class SweepLedger {
 public:
  SweepLedger(const tables::Recording& recording, const Cells& cells, Observer* observer)
      : tables_(recording.tables()),
        observer_(observer),
        bytes_(cells.all().size()),
        checkpointed_(tables_.accounts.size()),
        segments_(tables_.segments.size()),
        counters_(tables_.counters.size()) {
    for (const Cell& cell : cells.all())
      account_of_.push_back(cell.account.value);
    for (uint32_t i = 0; i < tables_.sites.size(); ++i)
      sites_.push_back({cells.OfSite(i), cells.OfRounding(i), tables_.sites[i].backing != 0});
    for (uint32_t i = 0; i < segments_.size(); ++i) {
      segments_[i].cell_idle = cells.OfFree(i, false);
      segments_[i].cell_in_use = cells.OfFree(i, true);
    }
  }

  // The state at an instant, of all accounts.
  util::Status Load(const tables::Recording& recording, int64_t time_ns) {
    for (const tables::CheckpointRow& row : tables_.checkpointed) {
      if (row.account.value < checkpointed_.size() && row.begin_ns <= time_ns &&
          time_ns < row.end_ns) {
        checkpoints_ += checkpointed_[row.account.value]++ == 0 ? 1u : 0u;
      }
    }
    VRAMSCOPE_ASSIGN_OR_RETURN(const auto live,
                               ReadLiveSetWithCheckpointed(recording, AllAt(tables_, time_ns)));
    for (uint32_t i = 0; i < live.sites.size(); ++i) {
      Move(sites_[i].own, static_cast<int64_t>(live.sites[i].bytes));
      Move(sites_[i].rounding, static_cast<int64_t>(live.sites[i].rounding_bytes));
    }
    for (uint32_t i = 1; i < live.segments.size(); ++i) {
      segments_[i].state = live.segments[i];
      MoveFree(&segments_[i]);
    }
    for (uint32_t i = 1; i < live.counters.size(); ++i) {
      if (tables_.counters[i].segment.value == 0)
        Step(i, live.counters[i]);
    }
    return {};
  }

  VRAMSCOPE_ALWAYS_INLINE void Apply(const Change& change) {
    const Site& site = sites_[change.what.site];
    const int64_t sign = change.what.ends != 0 ? -1 : 1;
    const int64_t bytes = sign * static_cast<int64_t>(change.bytes);
    Segment& segment = segments_[change.what.segment];
    if (change.what.is_rounding != 0) {
      // Out of what the row itself has.
      if (!site.is_backing)
        return Transfer(site.own, site.rounding, bytes);
      Move(site.rounding, bytes);
      segment.state.Back(-static_cast<uint64_t>(bytes));
      return MoveFree(&segment);
    }
    if (site.is_backing) {
      segment.state.Back(static_cast<uint64_t>(bytes));
      return MoveFree(&segment);
    }
    if (change.what.segment == 0)
      return Move(site.own, bytes);
    segment.state.Use(static_cast<uint64_t>(bytes), static_cast<uint64_t>(sign));
    const uint32_t cell = segment.FreeCell();
    const int64_t free = static_cast<int64_t>(segment.state.FreeBytes());
    if (cell != segment.cell || segment.free_bytes - free != bytes) {
      Move(site.own, bytes);
      return MoveFree(&segment);
    }
    Transfer(cell, site.own, bytes);
    segment.free_bytes = free;
  }

  void Apply(const SlowChange& change) {
    if (change.kind == SlowChange::Kind::kStep) {
      const uint32_t segment = tables_.counters[change.index].segment.value;
      if (segment == 0 || segment >= segments_.size()) {
        Step(change.index, change.bytes);
      } else {
        segments_[segment].state.Back(static_cast<uint64_t>(change.bytes));
        MoveFree(&segments_[segment]);
      }
      return;
    }
    // Times of one account may overlap.
    const bool begins = change.kind == SlowChange::Kind::kCheckpointed;
    uint32_t& times = checkpointed_[change.index];
    const uint32_t before = times;
    times = begins ? times + 1 : times - std::min<uint32_t>(times, 1);
    if ((before == 0) == (times == 0))
      return;
    begins ? ++checkpoints_ : --checkpoints_;
    for (uint32_t cell = 0; cell < bytes_.size(); ++cell) {
      if (account_of_[cell] == change.index && bytes_[cell] != 0)
        observer_->OnMove(cell, begins ? -bytes_[cell] : bytes_[cell]);
    }
  }

 private:
  struct Site {
    uint32_t own = 0;
    uint32_t rounding = 0;
    bool is_backing = false;
  };
  struct Segment {
    SegmentState state;
    int64_t free_bytes = 0;  // as moved
    uint32_t cell = 0;       // that has them
    uint32_t cell_idle = 0;
    uint32_t cell_in_use = 0;

    uint32_t FreeCell() const { return state.IsInUse() ? cell_in_use : cell_idle; }
  };

  VRAMSCOPE_ALWAYS_INLINE void Move(uint32_t cell, int64_t bytes) {
    if (bytes == 0)
      return;
    bytes_[cell] += bytes;
    if (checkpoints_ == 0 || checkpointed_[account_of_[cell]] == 0)
      observer_->OnMove(cell, bytes);
  }
  // Of a segment's free bytes into a block, and back.
  VRAMSCOPE_ALWAYS_INLINE void Transfer(uint32_t from, uint32_t to, int64_t bytes) {
    if constexpr (requires { observer_->OnTransfer(from, to, bytes); }) {
      if (checkpoints_ == 0 && account_of_[from] == account_of_[to]) [[likely]] {
        bytes_[from] -= bytes;
        bytes_[to] += bytes;
        return observer_->OnTransfer(from, to, bytes);
      }
    }
    Move(from, -bytes);
    Move(to, bytes);
  }
  // Free bytes follow from what happened to their segment. Of row 0, which is none, nothing is
  // said.
  void MoveFree(Segment* segment) {
    if (segment == segments_.data())
      return;
    const uint32_t cell = segment->FreeCell();
    const int64_t free = static_cast<int64_t>(segment->state.FreeBytes());
    Move(segment->cell, -segment->free_bytes);
    Move(cell, free);
    segment->free_bytes = free;
    segment->cell = cell;
  }
  void Step(uint32_t counter, int64_t bytes) {
    const uint32_t site = tables_.counters[counter].site.value;
    const int64_t before = counters_[counter];
    counters_[counter] += bytes;
    Move(sites_[site < sites_.size() ? site : 0].own,
         std::max<int64_t>(counters_[counter], 0) - std::max<int64_t>(before, 0));
  }

  const tables::Tables& tables_;
  Observer* observer_;
  std::vector<int64_t> bytes_;  // by cell, checkpointed or not
  std::vector<uint32_t> account_of_;
  std::vector<uint32_t> checkpointed_;  // by account: how many times it is
  uint32_t checkpoints_ = 0;            // accounts that are
  std::vector<Segment> segments_;
  std::vector<int64_t> counters_;
  std::vector<Site> sites_;
};

}  // namespace vramscope::query
