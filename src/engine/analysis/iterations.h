// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "engine/analysis/naming.h"
#include "engine/replay/ledger.h"
#include "engine/replay/movements.h"

namespace vramscope::engine {

// What is followed through an iteration: the categories by their numbers, then sums of rows.
inline constexpr size_t kTotalFigure = kCategories;
inline constexpr size_t kAllocatedFigure = kCategories + 1;
inline constexpr size_t kReservedFigure = kCategories + 2;
inline constexpr size_t kBackwardFigure = kCategories + 3;  // temporaries of backward
inline constexpr size_t kBeforeFigure = kCategories + 4;    // from before the recording, unnamed
inline constexpr size_t kIterationFigures = kCategories + 5;
using IterationFigures = std::array<int64_t, kIterationFigures>;

// One iteration of a process on a device.
struct IterationRow {
  uint32_t space = 0;
  int64_t number = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t peak_ns = 0;  // of the total
  IterationFigures peak{};
  IterationFigures end{};
};

// Follows a second replay, which knows the categories from the first, event by event. Whatever an
// iteration finds counts for its peaks, too.
class IterationTracker : public MovementObserver {
 public:
  // `first` is finished: it says where iterations begin and end.
  explicit IterationTracker(const Ledger& first);

  void Before(int64_t time_ns);
  void OnMovement(uint32_t space,
                  Part part,
                  Category category,
                  bool of_block,
                  Phase phase,
                  int64_t bytes) override;
  void After(int64_t time_ns);

  // All iterations of pairs of process and device that ever held something, in their order.
  std::vector<IterationRow> Finish();

 private:
  struct SpaceState {
    const ProcessIterations* iterations = nullptr;
    int64_t before_offset = 0;  // of `before recording`, until the first movement
    // What stood before is what NVML knows of beyond PyTorch's memory.
    bool before_is_outside = false;
    int64_t current = -1;  // the iteration under way; count() after the last
    IterationFigures now{};
    IterationRow row;
    uint32_t changed = 0;  // bit by figure
    std::vector<IterationRow> rows;
  };
  static_assert(kIterationFigures <= 32);

  void Move(SpaceState& state, size_t figure, int64_t bytes) {
    state.now[figure] += bytes;
    state.changed |= uint32_t{1} << figure;
  }
  // Ends the iteration under way and begins the next.
  void Advance(SpaceState& state);
  static int64_t NextBoundary(const SpaceState& state);

  std::vector<SpaceState> spaces_;
  std::vector<uint32_t> changed_;  // spaces with changes since the last event
  int64_t next_boundary_ns_ = kNever;
};

// What the parameters of a model took, by name.
struct ParameterRow {
  uint32_t space = 0;
  uint32_t name = 0;  // a text of the Naming
  uint64_t parameter = 0;
  uint64_t gradient = 0;
  uint64_t optimizer_state = 0;
};

// Gathers the lives of parameters, gradients and optimizer state that overlap the last whole
// iteration of their process.
class ParameterLives : public LifeObserver {
 public:
  ParameterLives(const Ledger& first, Naming& naming) : first_(first), naming_(naming) {}
  void OnBlock(const Block& block, uint32_t space, int64_t free_ns) override;
  void OnHolding(const Holding& holding, int64_t free_ns) override;
  void OnBlockBegin(const Block&, uint32_t) override {}
  void OnHoldingBegin(const Holding&) override {}
  void OnCarved(const Holding&) override {}

  // By process and device, in the order in which the model named them; the highest bytes within the
  // iteration.
  std::vector<ParameterRow> Finish() const;

 private:
  enum Role : uint8_t { kParameter, kGradient, kState, kRoles };
  struct Entry {
    uint32_t order = UINT32_MAX;                                           // of its first name
    std::array<std::vector<std::pair<int64_t, int64_t>>, kRoles> changes;  // time, bytes
  };

  void See(const LifeRecord& record);

  const Ledger& first_;
  Naming& naming_;
  std::map<std::pair<uint32_t, uint32_t>, Entry> entries_;  // by space and name
};

}  // namespace vramscope::engine
