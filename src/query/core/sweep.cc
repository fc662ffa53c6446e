// SPDX-License-Identifier: Apache-2.0
#include "query/core/sweep.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "query/core/parallel.h"

namespace vramscope::query {

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
