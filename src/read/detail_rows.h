// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "read/growing_table.h"
#include "read/site_columns.h"
#include "read/stack_texts.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::read {

// The stacks that an export has written. Its threads share the list, so that each stack is one row.
class WrittenStacks {
 public:
  // False if it was there.
  bool Add(uint64_t id) {
    const std::scoped_lock lock(mutex_);
    return ids_.insert(id).second;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<uint64_t> ids_;
};

// The tables of whole recordings.
struct DetailTables {
  GrowingTable allocations;
  GrowingTable deltas{"deltas"};
  GrowingTable samples{"samples"};
  GrowingTable stacks{"stacks"};
};

// Memory that is used for each recording.
struct DetailScratch {
  tables::AllocationFrame frame;
  tables::AllocationFrame pending;
  std::vector<uint32_t> order;
  std::vector<uint64_t> keys;
  std::vector<uint64_t> sorted_keys;
  std::vector<uint32_t> sites;
  std::vector<uint32_t> segments;
};

// The rows of one recording:
//
//   frames --> pending rows --> sorted by rank and time --> allocations
class DetailRows {
 public:
  DetailRows(std::shared_ptr<const tables::Recording> recording,
             size_t group_rows,
             WrittenStacks* written,
             DetailTables* out,
             DetailScratch* scratch);

  bool IsOf(const tables::Recording& recording) const { return &recording == recording_.get(); }
  // Reads all of it: rows of a damaged recording must not be in a batch that is already written.
  util::Status Check() const;
  // False: `group_rows` rows were added, and more follow. After an error no row is there.
  util::Result<bool> AddAllocations();
  void AddDeltas();
  void AddSamples();

 private:
  // Numbers of segments are unique over all recordings after this was added.
  uint64_t FirstSegment() const;
  void Append(const tables::AllocationFrame& frame);
  // Makes `order` the pending rows by rank and time; equal ones keep their order.
  void SortPending();
  void SortByTime();
  // Moves the pending rows into the table.
  void Flush();
  // Row 0 is none.
  void AddSegments(const std::vector<uint32_t>& segments, Column* column) const;
  void AddStacks();

  std::shared_ptr<const tables::Recording> recording_;
  const tables::Tables& tables_;
  size_t group_rows_;
  WrittenStacks* written_;
  DetailTables& out_;
  DetailScratch& memory_;
  tables::AllocationFrame& pending_;  // rows that are not in the table yet
  StackTexts stacks_;
  SiteColumns columns_;
  uint64_t first_segment_;
  size_t allocations_before_;
  size_t next_ = 0;  // frame
};

}  // namespace vramscope::read
