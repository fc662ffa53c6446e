// SPDX-License-Identifier: Apache-2.0
#include "engine/analysis/iterations.h"

#include <algorithm>
#include <utility>

namespace vramscope::engine {
namespace {

// Rows that are bytes in somebody's hands; what blocks hold is counted by block.
bool IsAllocated(Part part) {
  return !IsSlack(part) && part != Part::kUncut && PartCategory(part) != Category::kDriver;
}

}  // namespace

IterationTracker::IterationTracker(const Ledger& first) : spaces_(first.spaces().size()) {
  for (size_t i = 0; i < spaces_.size(); ++i) {
    const Space& space = first.spaces()[i];
    SpaceState& state = spaces_[i];
    state.iterations = &first.iterations().of(space.process);
    state.before_offset = space.before_offset;
    state.before_is_outside = space.before_settled;
    state.row.space = static_cast<uint32_t>(i);
    if (state.iterations->empty())
      state.current = 0;
    next_boundary_ns_ = std::min(next_boundary_ns_, NextBoundary(state));
  }
}

// The last instant of what is under way.
int64_t IterationTracker::NextBoundary(const SpaceState& state) {
  if (state.current >= state.iterations->count())
    return kNever;
  return state.current < 0 ? state.iterations->begin_ns : state.iterations->EndOf(state.current);
}

void IterationTracker::Advance(SpaceState& state) {
  if (state.current >= 0) {
    state.row.end = state.now;
    state.rows.push_back(state.row);
  }
  if (++state.current >= state.iterations->count())
    return;
  state.row.number = state.current;
  state.row.begin_ns = state.iterations->BeginOf(state.current);
  state.row.end_ns = state.iterations->EndOf(state.current);
  state.row.peak = state.now;
  state.row.peak_ns = state.row.begin_ns;
}

void IterationTracker::Before(int64_t time_ns) {
  if (time_ns <= next_boundary_ns_)
    return;
  next_boundary_ns_ = kNever;
  for (SpaceState& state : spaces_) {
    while (NextBoundary(state) < time_ns)
      Advance(state);
    next_boundary_ns_ = std::min(next_boundary_ns_, NextBoundary(state));
  }
}

void IterationTracker::OnMovement(uint32_t space,
                                  Part part,
                                  Category category,
                                  bool of_block,
                                  Phase phase,
                                  int64_t bytes) {
  if (space >= spaces_.size())
    return;
  SpaceState& state = spaces_[space];
  if (state.before_offset != 0) {
    const int64_t before = std::exchange(state.before_offset, 0);
    OnMovement(space, Part::kBeforeRecording, Category::kUnknown, false, Phase::kOther, before);
  }
  if (state.changed == 0)
    changed_.push_back(space);
  Move(state, static_cast<size_t>(category), bytes);
  Move(state, kTotalFigure, bytes);
  const bool of_before = part == Part::kBeforeRecording;
  const bool outside = of_before && !of_block && state.before_is_outside;
  if (of_block || (IsAllocated(part) && !outside))
    Move(state, kAllocatedFigure, bytes);
  if (PartCategory(part) != Category::kDriver && !outside)
    Move(state, kReservedFigure, bytes);
  if (of_before)
    Move(state, kBeforeFigure, bytes);
  if (of_block && category == Category::kTemporary && phase == Phase::kBackward)
    Move(state, kBackwardFigure, bytes);
}

void IterationTracker::After(int64_t time_ns) {
  for (const uint32_t space : changed_) {
    SpaceState& state = spaces_[space];
    const uint32_t changed = std::exchange(state.changed, 0);
    if (state.current < 0 || state.current >= state.iterations->count())
      continue;
    if (state.now[kTotalFigure] > state.row.peak[kTotalFigure])
      state.row.peak_ns = time_ns;
    for (size_t figure = 0; figure < kIterationFigures; ++figure) {
      if ((changed >> figure & 1) != 0)
        state.row.peak[figure] = std::max(state.row.peak[figure], state.now[figure]);
    }
  }
  changed_.clear();
}

std::vector<IterationRow> IterationTracker::Finish() {
  Before(kNever);
  std::vector<IterationRow> rows;
  for (const SpaceState& state : spaces_) {
    const bool used = std::any_of(state.rows.begin(), state.rows.end(),
                                  [](const auto& row) { return row.peak[kTotalFigure] > 0; });
    if (used)
      rows.insert(rows.end(), state.rows.begin(), state.rows.end());
  }
  return rows;
}

void ParameterLives::OnBlock(const Block& block, uint32_t space, int64_t free_ns) {
  See(RecordOf(block, space, free_ns));
}

void ParameterLives::OnHolding(const Holding& holding, int64_t free_ns) {
  if (holding.carved_life == kNoLife)
    See(RecordOf(holding, free_ns));
}

void ParameterLives::See(const LifeRecord& record) {
  if (record.origin.names == 0)
    return;
  const trace::ProcessId process = first_.spaces()[record.space].process;
  const ProcessIterations& iterations = first_.iterations().of(process);
  if (iterations.empty() || record.alloc_ns > iterations.EndOf(iterations.count() - 1) ||
      record.free_ns <= iterations.BeginOf(iterations.count() - 1))
    return;
  Role role = kRoles;
  switch (first_.CategoryOf(process, record.origin)) {
    case Category::kParameter:
      role = kParameter;
      break;
    case Category::kGradient:
      role = kGradient;
      break;
    case Category::kOptimizerState:
      role = kState;
      break;
    default:
      return;
  }
  const uint32_t name = naming_.Parameter(naming_.Of(record));
  if (name == 0)
    return;
  Entry& entry = entries_[{record.space, name}];
  const NameSet& names = first_.names().set(record.origin.names);
  if (role == kParameter)
    entry.order = std::min(entry.order, names.first);
  const uint64_t bytes =
      names.requested == 0 ? record.bytes : std::min(record.bytes, names.requested);
  entry.changes[role].emplace_back(record.alloc_ns, static_cast<int64_t>(bytes));
  if (record.free_ns != kNever)
    entry.changes[role].emplace_back(record.free_ns, -static_cast<int64_t>(bytes));
}

std::vector<ParameterRow> ParameterLives::Finish() const {
  std::vector<std::pair<uint32_t, ParameterRow>> ordered;
  for (const auto& [key, entry] : entries_) {
    ParameterRow row;
    row.space = key.first;
    row.name = key.second;
    const trace::ProcessId process = first_.spaces()[row.space].process;
    const ProcessIterations& iterations = first_.iterations().of(process);
    const int64_t begin_ns = iterations.BeginOf(iterations.count() - 1);
    const int64_t end_ns = iterations.EndOf(iterations.count() - 1);
    uint64_t* const highest[] = {&row.parameter, &row.gradient, &row.optimizer_state};
    for (size_t role = 0; role < kRoles; ++role) {
      auto changes = entry.changes[role];
      // At one instant what goes makes room first.
      std::sort(changes.begin(), changes.end());
      int64_t now = 0;
      for (const auto& [time_ns, bytes] : changes) {
        if (time_ns > end_ns)
          break;
        if (time_ns > begin_ns)
          *highest[role] =
              std::max(*highest[role], static_cast<uint64_t>(std::max<int64_t>(now, 0)));
        now += bytes;
      }
      *highest[role] = std::max(*highest[role], static_cast<uint64_t>(std::max<int64_t>(now, 0)));
    }
    ordered.emplace_back(entry.order, row);
  }
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return a.second.space != b.second.space ? a.second.space < b.second.space : a.first < b.first;
  });
  std::vector<ParameterRow> rows;
  for (const auto& [order, row] : ordered)
    rows.push_back(row);
  return rows;
}

}  // namespace vramscope::engine
