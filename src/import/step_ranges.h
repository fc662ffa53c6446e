// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "import/builder.h"

namespace vramscope::imports {

// The iterations of a trace of PyTorch's, from the ranges that it names: torch.profiler's
// "ProfilerStep#7", else the optimizers' "Optimizer.step#Adam.step".
class StepRanges {
 public:
  // A range of time that was named so, in any order.
  void Add(std::string_view name, tables::ProcessId process, int64_t begin_ns, int64_t end_ns);
  // `first_ns`: where the first iteration begins if an optimizer's step ends it.
  void Finish(int64_t first_ns, Builder* builder);

 private:
  struct Range {
    int64_t number = 0;  // of a profiler's step
    int64_t begin_ns = 0, end_ns = 0;
  };
  struct Process {
    std::vector<Range> profiler_steps, optimizer_steps;
  };
  std::map<tables::ProcessId, Process> processes_;
};

}  // namespace vramscope::imports
