// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "read/growing_table.h"
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

// Rows of many recordings with the columns of docs/DATASET.md, for a writer of Parquet:
//
//   AddSummary(recording) --> ranks, iterations, parts, ... --+
//                                                             +--> Take(): a batch of Arrow
//   AddDetail(recording) ---> allocations, deltas, ... -------+
//
// Names are codes of one dictionary a batch. A batch of allocations has at most `group_rows` rows,
// and the rows of a smaller recording are never in two of them.
class DatasetRows {
 public:
  DatasetRows(size_t group_rows, std::shared_ptr<WrittenStacks> stacks);
  ~DatasetRows();
  DatasetRows(const DatasetRows&) = delete;
  DatasetRows& operator=(const DatasetRows&) = delete;

  // Adds the rows of the summary, with `number` as the column `recording`.
  util::Status AddSummary(const tables::Recording& recording, int64_t number);
  // Adds the detail. False: the allocations are a whole batch; Take() them, and call it again.
  // After an error the recording has no row.
  util::Result<bool> AddDetail(const std::shared_ptr<const tables::Recording>& recording);

  // Null if no table is named so.
  GrowingTable* Find(const std::string& name);
  const std::shared_ptr<WrittenStacks>& stacks() const { return stacks_; }

 private:
  class Detail;

  // Memory that is used for each recording.
  struct Scratch {
    tables::AllocationFrame frame;
    tables::AllocationFrame pending;
    std::vector<uint32_t> order;
    std::vector<std::pair<uint64_t, uint32_t>> items;  // time and row
    std::vector<std::pair<uint64_t, uint32_t>> sorted;
    std::vector<uint32_t> sites;
    std::vector<uint32_t> segments;
  };

  size_t group_rows_;
  std::shared_ptr<WrittenStacks> stacks_;
  std::vector<std::unique_ptr<GrowingTable>> summary_;
  GrowingTable recordings_{"recordings"};
  GrowingTable allocations_;
  GrowingTable deltas_{"deltas"};
  GrowingTable samples_{"samples"};
  GrowingTable stack_rows_{"stacks"};
  Scratch scratch_;
  std::unique_ptr<Detail> open_;  // of a recording whose rows are several batches
};

}  // namespace vramscope::read
