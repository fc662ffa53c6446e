// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "import/builder.h"

namespace vramscope::imports {

// Makes rows of allocations and frees at addresses. Contradictions are counted as losses of
// format/losses.def.
class LiveBlocks {
 public:
  explicit LiveBlocks(Builder* builder) : builder_(*builder) {}

  // `space`: an address space, such as a device. Ends a block that is live at the address.
  void Allocate(uint32_t space,
                uint64_t address,
                uint64_t bytes,
                tables::SiteId site,
                int64_t now_ns,
                tables::SegmentId segment = {});
  // Returns the freed bytes; 0 if the address has no live block.
  uint64_t Free(uint32_t space, uint64_t address, int64_t now_ns);
  uint64_t live_bytes(uint32_t space) const;
  // The remaining blocks were never freed.
  void Finish();

 private:
  void End(const tables::AllocationRow& row, uint32_t space, int64_t now_ns);

  Builder& builder_;
  std::map<std::pair<uint32_t, uint64_t>, tables::AllocationRow> live_;
  std::map<uint32_t, uint64_t> live_bytes_;
};

// Finds iterations in a PyTorch trace by named ranges: torch.profiler's "ProfilerStep#7", or
// without those the optimizers' "Optimizer.step#Adam.step".
class StepRanges {
 public:
  // Adds a named range of time, in any order.
  void Add(std::string_view name, tables::ProcessId process, int64_t begin_ns, int64_t end_ns);
  // `first_ns`: begin of the first iteration if it ends with an optimizer's step.
  void Finish(int64_t first_ns, Builder* builder);

 private:
  struct Range {
    int64_t number = 0;  // of the profiler's step
    int64_t begin_ns = 0, end_ns = 0;
  };
  struct Process {
    std::vector<Range> profiler_steps, optimizer_steps;
  };
  std::map<tables::ProcessId, Process> processes_;
};

}  // namespace vramscope::imports
