// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "pipeline/compact/compaction.h"
#include "util/containers/flat_map.h"

namespace vramscope::compact {

// Decides what a ring keeps of a live file's oldest chunks where a compaction is too slow
// (docs/FORMAT.md). It reads these chunks once, and of the others what is as old: no names, no
// prices, no peaks. Allocations that are live at the cut, and those that were live at the instants
// of earlier compactions, are kept with their names. Allocations that came and went between them
// are counted as dropped.
class Dropper {
 public:
  // Instants in nanoseconds, by the file's own number of the device.
  using Instants = std::map<int64_t, std::set<int64_t>>;

  // `plan`: of that file, its chunks chosen; what is kept is entered in it.
  Dropper(const trace::LiveFile& file,
          const trace::TickClock& clock,
          const Instants& instants,
          CompactionPlan* plan);

  void Run();

 private:
  class Cursor;
  struct Place {
    size_t stream = 0;
    uint32_t record = 0;
    bool is_old = false;  // false: it is in a chunk that stays
  };
  enum class What : uint8_t { kAlloc, kFree, kName };
  struct Item {
    What what = What::kAlloc;
    uint64_t ticks = 0;
    uint64_t address = 0;
    uint64_t bytes = 0;
    int64_t device = 0;
    uint64_t name_kind = 0;
    Place place;
  };
  struct Open {
    bool used = false;
    Place place;
    uint64_t ticks = 0;
    uint64_t bytes = 0;
    int64_t device = 0;
    std::vector<std::pair<uint64_t, Place>> names;  // the latest of each kind
    bool live() const { return used; }
  };
  // The blocks of a device.
  struct Sum {
    uint64_t bytes = 0;
    uint64_t most_bytes = 0;
    uint64_t most_ticks = 0;
    // Allocations that were live then and have ended: dropped if the bytes rise above that later.
    std::vector<std::pair<Open, Place>> ended;
  };
  // The last figure or step of a kind, which is valid until the next one.
  struct Last {
    uint64_t ticks = 0;
    Place place;
  };

  void Apply(const Item& item);
  void Name(const Item& item);
  // It ended then, by a record at that place (or none).
  void Close(uint32_t index, uint64_t end_ticks, const Place* end);
  void KeepOpen(const Open& open);
  void Keep(const Place& place) {
    if (place.is_old)
      plan_.streams[place.stream].keep[place.record] = true;
  }
  bool HasInstant(int64_t device, uint64_t begin_ticks, uint64_t end_ticks) const;
  static uint64_t KeyOf(uint64_t address, int64_t device) {
    return address ^ static_cast<uint64_t>(device + 3) << 56;
  }

  const trace::LiveFile& file_;
  const trace::TickClock& clock_;
  const Instants& instants_;
  CompactionPlan& plan_;
  util::FlatMap numbers_;
  util::Slab<Open> open_;
  std::map<int64_t, Sum> sums_;                                 // by device
  std::map<std::pair<uint64_t, uint64_t>, Place> other_names_;  // by address and kind: the latest
  std::map<int64_t, Last> totals_;                              // by device
  std::map<uint64_t, Place> steps_;                             // under way, by optimizer
  PhaseMarks<Place> phase_marks_;
  uint64_t first_optimizer_ = 0;
  uint64_t rounds_ = 0;  // of that optimizer
  uint64_t marks_ = 0;   // that end an iteration
};

}  // namespace vramscope::compact
