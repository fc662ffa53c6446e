// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "trace/trace.h"

namespace vramscope::resolve {

// Which recorded process each was started by.
class Ancestors {
 public:
  explicit Ancestors(const trace::Trace& trace)
      : parents_(trace.processes().size(), trace::kNoProcess) {
    std::multimap<uint32_t, size_t> by_pid;  // numbers are given out again
    for (size_t i = 0; i < parents_.size(); ++i)
      by_pid.emplace(trace.processes()[i].pid, i);
    for (size_t i = 0; i < parents_.size(); ++i) {
      const trace::Process& child = trace.processes()[i];
      int64_t latest_ns = INT64_MIN;
      const auto [first, last] = by_pid.equal_range(child.parent_pid);
      for (auto it = first; it != last; ++it) {
        const int64_t start_ns = trace.processes()[it->second].start_ns;
        if (it->second == i || start_ns > child.start_ns || start_ns < latest_ns)
          continue;
        latest_ns = start_ns;
        parents_[i] = trace::ProcessId{static_cast<uint16_t>(it->second)};
      }
    }
  }

  // kNoProcess: none that was recorded.
  trace::ProcessId ParentOf(trace::ProcessId process) const { return parents_[process.value]; }

 private:
  std::vector<trace::ProcessId> parents_;
};

}  // namespace vramscope::resolve
