// SPDX-License-Identifier: Apache-2.0
#include "import/event_log.h"

#include <algorithm>

#include "util/size_text.h"

namespace vramscope::imports {
namespace {

constexpr uint64_t kNodeBytes = sizeof(tables::AllocationRow) + 64;
constexpr std::string_view kProfilerStep = "ProfilerStep#";
constexpr std::string_view kOptimizerStep = "Optimizer.step#";
constexpr int64_t kMostNumber = int64_t{1} << 40;

}  // namespace

void LiveBlocks::End(const tables::AllocationRow& row, uint32_t space, int64_t now_ns) {
  tables::AllocationRow ended = row;
  ended.end_ns = now_ns;
  live_bytes_[space] -= row.bytes;
  builder_.Add(ended);
}

void LiveBlocks::Allocate(uint32_t space,
                          uint64_t address,
                          uint64_t bytes,
                          tables::SiteId site,
                          int64_t now_ns,
                          tables::SegmentId segment) {
  tables::AllocationRow row;
  row.begin_ns = row.alloc_ns = now_ns;
  row.end_ns = tables::kNever;
  row.address = address;
  row.bytes = bytes;
  row.site = site;
  row.segment = segment;
  const auto [at, added] = live_.try_emplace({space, address}, row);
  if (!added) {
    builder_.Lose("allocations at a live address", 1, at->second.bytes);
    End(at->second, space, now_ns);
    at->second = row;
  } else if (!builder_.budget().Charge("live blocks", 1, kNodeBytes)) {
    live_.erase(at);
    return;
  }
  live_bytes_[space] += bytes;
}

uint64_t LiveBlocks::Free(uint32_t space, uint64_t address, int64_t now_ns) {
  const auto at = live_.find({space, address});
  if (at == live_.end())
    return 0;
  const uint64_t bytes = at->second.bytes;
  End(at->second, space, now_ns);
  live_.erase(at);
  return bytes;
}

uint64_t LiveBlocks::live_bytes(uint32_t space) const {
  const auto found = live_bytes_.find(space);
  return found == live_bytes_.end() ? 0 : found->second;
}

void LiveBlocks::Finish() {
  for (const auto& [place, row] : live_)
    builder_.Add(row);
  live_.clear();
}

void StepRanges::Add(std::string_view name,
                     tables::ProcessId process,
                     int64_t begin_ns,
                     int64_t end_ns) {
  if (name.starts_with(kProfilerStep)) {
    const auto number = util::WholeNumber<int64_t>(name.substr(kProfilerStep.size()));
    if (number && *number >= 0 && *number < kMostNumber)
      processes_[process].profiler_steps.push_back({*number, begin_ns, end_ns});
  } else if (name.starts_with(kOptimizerStep)) {
    processes_[process].optimizer_steps.push_back({0, begin_ns, end_ns});
  }
}

// Iterations of a process are consecutive, so the first number gives the others.
void StepRanges::Finish(int64_t first_ns, Builder* builder) {
  for (auto& [process, ranges] : processes_) {
    const bool by_profiler = !ranges.profiler_steps.empty();
    std::vector<Range>& steps = by_profiler ? ranges.profiler_steps : ranges.optimizer_steps;
    std::sort(steps.begin(), steps.end(),
              [](const Range& a, const Range& b) { return a.end_ns < b.end_ns; });
    if (steps.empty())
      continue;
    builder->process(process).iterations_by =
        by_profiler ? tables::IterationsBy::kProfiler : tables::IterationsBy::kSteps;
    int64_t number = steps.front().number;
    int64_t begin_ns = by_profiler ? steps.front().begin_ns : first_ns;
    for (const Range& step : steps) {
      builder->Iteration(process, number++, begin_ns, step.end_ns);
      begin_ns = step.end_ns;
    }
  }
}

}  // namespace vramscope::imports
