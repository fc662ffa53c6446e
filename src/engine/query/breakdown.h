// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/analysis/leaves.h"
#include "engine/analysis/naming.h"
#include "engine/model/frames.h"
#include "engine/query/report.h"

namespace vramscope::engine {

// The ledger's levels below process, for people: {"PyTorch", "cached"}, {"driver-owned",
// "context", "cuCtxCreate"}, {"before recording"}. What PyTorch gave to the program stands under
// its category where that is known.
std::vector<std::string> LevelsOf(const std::string& owner,
                                  Part part,
                                  Category category = Category::kUnknown,
                                  const std::string* trigger = nullptr);

// Sums leaves into rows by dimensions. A leaf's value of a dimension is a number first (an id of
// some table); texts are made once for each number.
class Breakdown {
 public:
  Breakdown(const Ledger& ledger, UserFrames& frames, Naming& naming, const ReportQuery& query)
      : ledger_(ledger), trace_(ledger.trace()), frames_(frames), naming_(naming), query_(query) {}

  // False if the conditions exclude the leaf.
  bool Add(const Leaf& leaf);
  // Largest first within a device; the rest in one row where the query limits their number.
  std::vector<ReportRow> Take();

 private:
  struct Sum {
    uint64_t bytes = 0;
    uint64_t count = 0;
  };
  struct KeyHash {
    size_t operator()(const std::vector<uint64_t>& key) const noexcept;
  };

  uint64_t Number(const Leaf& leaf, Dimension dimension);
  std::string Text(uint64_t number, Dimension dimension, const Leaf& leaf);
  const std::string& CachedText(uint64_t number, Dimension dimension, const Leaf& leaf);
  bool Matches(const ReportQuery::Where& where, const std::string& text, const Leaf& leaf) const;
  std::string StackText(trace::StackId stack) const;

  const Ledger& ledger_;
  const trace::Trace& trace_;
  UserFrames& frames_;
  Naming& naming_;
  const ReportQuery& query_;
  std::unordered_map<std::vector<uint64_t>, std::pair<Sum, std::vector<std::string>>, KeyHash>
      sums_;
  std::vector<std::unordered_map<uint64_t, std::string>> texts_;  // by dimension
  std::vector<std::unordered_map<uint64_t, bool>> verdicts_;      // by condition
};

}  // namespace vramscope::engine
