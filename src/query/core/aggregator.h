// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "query/core/live_set.h"
#include "query/dimensions/dimensions.h"
#include "query/dimensions/report.h"
#include "util/budget.h"

namespace vramscope::query {

// Sums leaves into rows by dimensions: filter, grouping and measure of every question. A leaf's
// value of a dimension is a number first (an id of some table); texts are made once for each, and
// the budget is charged for them and for each row that has them.
class Aggregator {
 public:
  Aggregator(const tables::Recording& recording,
             const DimensionValues& values,
             const ReportQuery& query,
             util::Budget* budget)
      : recording_(recording), values_(values), query_(query), budget_(*budget) {}

  // What tells rows of one site apart in this query; empty where sites are enough.
  static RowKey KeyOfRows(const tables::Recording& recording,
                          const DimensionValues& values,
                          const ReportQuery& query);

  // What the query's conditions let through.
  bool Selects(const Leaf& leaf);
  // Does nothing with what they do not, and returns false.
  bool Add(const Leaf& leaf);
  // Largest first within a device.
  std::vector<ReportRow> Take();

 private:
  struct Sum {
    uint64_t bytes = 0;
    uint64_t count = 0;
  };
  struct Row {
    Sum sum;
    std::vector<std::string> path;
    uint32_t nameless = 0;  // as in ReportRow
    uint32_t of_segment = 0;
  };
  struct KeyHash {
    size_t operator()(const std::vector<uint64_t>& key) const noexcept;
  };

  const std::string& TextOf(Dimension dimension, uint64_t id);

  const tables::Recording& recording_;
  const DimensionValues& values_;
  const ReportQuery& query_;
  util::Budget& budget_;
  std::unordered_map<std::vector<uint64_t>, Row, KeyHash> rows_;
  std::unordered_map<uint64_t, std::string> text_of_[kDimensionCount];
  std::vector<std::unordered_map<uint64_t, bool>> verdicts_;  // by condition
};

}  // namespace vramscope::query
