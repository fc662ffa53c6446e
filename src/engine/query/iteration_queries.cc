// SPDX-License-Identifier: Apache-2.0
#include "engine/query/iteration_queries.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/analysis/iterations.h"
#include "engine/analysis/leaks.h"
#include "engine/analysis/naming.h"

namespace vramscope::engine {
namespace {

uint64_t Positive(int64_t bytes) {
  return bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
}

Iteration IterationOf(const IterationRow& row, const Ledger& ledger) {
  const Space& space = ledger.spaces()[row.space];
  Iteration out;
  out.number = row.number;
  out.process = space.process;
  out.device = space.device;
  out.begin_ns = row.begin_ns;
  out.end_ns = row.end_ns;
  out.peak_bytes = Positive(row.peak[kTotalFigure]);
  out.peak_ns = row.peak_ns;
  out.end_bytes = Positive(row.end[kTotalFigure]);
  out.peak_allocated = Positive(row.peak[kAllocatedFigure]);
  out.end_allocated = Positive(row.end[kAllocatedFigure]);
  out.peak_reserved = Positive(row.peak[kReservedFigure]);
  out.end_reserved = Positive(row.end[kReservedFigure]);
  out.backward_temporary_peak = Positive(row.peak[kBackwardFigure]);
  out.before_recording_peak = Positive(row.peak[kBeforeFigure]);
  for (size_t i = 0; i < kCategories; ++i) {
    out.category_peak.push_back(Positive(row.peak[i]));
    out.category_end.push_back(Positive(row.end[i]));
  }
  return out;
}

std::vector<Growth> GrowthsOf(const std::vector<LeakGroup>& groups,
                              size_t limit,
                              const Ledger& ledger,
                              const Naming& naming) {
  std::vector<Growth> growths;
  for (const LeakGroup& group : groups) {
    if (growths.size() == limit)
      break;
    Growth growth;
    growth.device = ledger.spaces()[group.space].device;
    growth.stack = group.stack;
    if (group.frame.value != 0)
      growth.place = FormatFrame(ledger.trace(), group.frame);
    growth.module = naming.text(group.name);
    growth.category = CategoryName(group.category);
    growth.bytes_per_iteration = group.bytes_per_iteration;
    growth.first_bytes = group.first_bytes;
    growth.last_bytes = group.last_bytes;
    growth.count = group.count;
    growth.steady = group.steady;
    growths.push_back(std::move(growth));
  }
  return growths;
}

}  // namespace

util::Result<Iterations> FindIterations(trace::Trace& trace, const Ledger& first) {
  if (!first.iterations().any()) {
    return util::Status::Error(
        "no iterations: the steps of a torch optimizer end them, or marks named `iteration` "
        "(vramscope.mark(\"iteration\"))");
  }
  Naming naming(first);
  IterationTracker tracker(first);
  ParameterLives parameters(first, naming);
  LedgerOptions options;
  options.observer = &parameters;
  options.categories = &first.life_categories();
  options.movements = &tracker;
  Ledger ledger(trace, options);
  const util::Status status = trace.ForEachEvent([&](std::span<const trace::Event> events) {
    for (size_t i = 0; i < events.size(); ++i) {
      // What a live recording's process has at the end of an iteration is not gone with the last
      // event that was read.
      const bool is_end = events[i].kind == trace::EventKind::kProcessEnd;
      tracker.Before(events[i].time_ns + (is_end ? 1 : 0));
      ledger.Apply(events.subspan(i, 1));
      // What stood before is told piece by piece, and stood there all at once.
      if (events[i].kind != trace::EventKind::kPrior)
        tracker.After(events[i].time_ns);
    }
  });
  if (!status.ok())
    return status;
  ledger.Finish();

  Iterations out;
  for (const IterationRow& row : tracker.Finish())
    out.iterations.push_back(IterationOf(row, first));
  std::stable_sort(out.iterations.begin(), out.iterations.end(),
                   [](const Iteration& a, const Iteration& b) {
                     return a.process != b.process ? a.process < b.process : a.device < b.device;
                   });
  for (const ParameterRow& row : parameters.Finish()) {
    const Space& space = first.spaces()[row.space];
    out.parameters.push_back({naming.text(row.name), row.parameter, row.gradient,
                              row.optimizer_state, space.process, space.device});
  }
  bool steps = false;
  bool marks = false;
  for (size_t i = 0; i < trace.processes().size(); ++i) {
    const ProcessIterations& of = first.iterations().of(trace::ProcessId{static_cast<uint16_t>(i)});
    steps = steps || (!of.empty() && !of.by_marks);
    marks = marks || (!of.empty() && of.by_marks);
  }
  out.source = steps && marks ? "optimizer steps and marks" : marks ? "marks" : "optimizer steps";
  return out;
}

util::Result<Leaks> FindLeaks(trace::Trace& trace,
                              const Ledger& first,
                              UserFrames& frames,
                              const LeakOptions& options) {
  Naming naming(first);
  Suppressions suppressions(trace, options.suppressions);
  Leaks out;
  for (size_t i = 0; i < trace.processes().size(); ++i) {
    const ProcessIterations& of = first.iterations().of(trace::ProcessId{static_cast<uint16_t>(i)});
    out.iterations = std::max(out.iterations, of.count());
  }
  if (out.iterations > 0) {
    out.warm_up = WarmUpOf(out.iterations);
    GrowthFinder finder(first, naming, frames, suppressions);
    LedgerOptions ledger_options;
    ledger_options.observer = &finder;
    Ledger ledger(trace, ledger_options);
    const util::Status status =
        trace.ForEachEvent([&](std::span<const trace::Event> events) { ledger.Apply(events); });
    if (!status.ok())
      return status;
    ledger.Finish();
    out.growing = GrowthsOf(finder.Finish(), options.limit, first, naming);
  }
  const LeakGroups never_freed = FindNeverFreed(first, naming, frames, suppressions);
  out.never_freed = GrowthsOf(never_freed.groups, options.limit, first, naming);
  out.suppressed_bytes = never_freed.suppressed_bytes;
  out.suppressed_count = never_freed.suppressed_count;
  return out;
}

}  // namespace vramscope::engine
