// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "query/dimensions/iteration_times.h"
#include "tables/recording.h"
#include "util/status.h"

// One process's allocations on one device, and their total over time, for FindSavings().
namespace vramscope::query {

struct LiveBlock {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t alloc_ns = 0;
  uint64_t bytes = 0;
  tables::SiteId site;
};

// A change of memory that readings tell, such as managed memory.
struct CountedStep {
  int64_t time_ns = 0;
  int64_t bytes = 0;
  tables::SiteId site;
};

struct LiveBlocks {
  tables::AccountId account;
  std::vector<LiveBlock> all;        // by alloc_ns, then begin_ns
  std::vector<CountedStep> counted;  // in no rule, but in the total
  std::vector<int64_t> backward_ns;  // when a backward allocated, in order
};

// What a change of the program does to one block: it does not live then.
struct Absence {
  size_t block = 0;
  int64_t from_ns = 0;
  int64_t to_ns = 0;
};
// What the change needs in addition, such as the results of a forward that runs again.
struct Addition {
  int64_t from_ns = 0;
  int64_t to_ns = 0;
  uint64_t bytes = 0;
};
struct BlockChanges {
  std::vector<Absence> absences;
  std::vector<Addition> additions;
};

// Of the account with the most bytes (FindLargestAccount). An error where no allocation is
// recorded.
util::Result<LiveBlocks> ReadBlocks(const tables::Recording& recording);

// The total of the blocks over time. An instant has the bytes after all of its changes.
class BlockTotal {
 public:
  struct Highest {
    uint64_t bytes = 0;
    int64_t time_ns = 0;
  };

  explicit BlockTotal(const LiveBlocks& blocks);
  // The highest point with these changes. Absences of one block may overlap.
  Highest With(BlockChanges changes) const;

 private:
  struct Step {
    int64_t time_ns = 0;
    int64_t bytes = 0;
  };
  static void Sort(std::vector<Step>* steps);

  const LiveBlocks& blocks_;
  std::vector<Step> steps_;
};

}  // namespace vramscope::query
