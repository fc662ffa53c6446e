// SPDX-License-Identifier: Apache-2.0
#include "import/step_ranges.h"

#include <algorithm>

#include "util/size_text.h"

namespace vramscope::imports {
namespace {

constexpr std::string_view kProfilerStep = "ProfilerStep#";
constexpr std::string_view kOptimizerStep = "Optimizer.step#";
constexpr int64_t kMostNumber = int64_t{1} << 40;

}  // namespace

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

// Iterations of one process follow each other, so that the number of the first one gives the rest.
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
