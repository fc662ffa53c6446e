// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "read/detail_rows.h"
#include "read/growing_table.h"
#include "read/open.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::read {

// Rows of many recordings with the columns of docs/DATASET.md, for a writer of Parquet:
//
//   AddHead(run, rank) -----> recordings ---------------------+
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

  // Adds a row to `recordings`, with `number` as the column `recording`.
  void AddHead(const Head& head, int64_t number);
  // Adds the rows of the summary.
  util::Status AddSummary(const tables::Recording& recording, int64_t number);
  // Adds the detail. False: the allocations are a whole batch; Take() them, and call it again.
  // After an error the recording has no row.
  util::Result<bool> AddDetail(const std::shared_ptr<const tables::Recording>& recording);

  // Null if no table is named so.
  GrowingTable* Find(const std::string& name);
  const std::shared_ptr<WrittenStacks>& stacks() const { return written_; }

 private:
  size_t group_rows_;
  std::shared_ptr<WrittenStacks> written_;
  std::vector<std::unique_ptr<GrowingTable>> summary_;
  GrowingTable recordings_{"recordings"};
  DetailTables detail_;
  DetailScratch scratch_;
  std::unique_ptr<DetailRows> open_;  // of a recording whose rows are several batches
};

}  // namespace vramscope::read
