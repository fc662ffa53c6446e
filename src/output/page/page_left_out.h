// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "util/json_writer.h"

// Which allocations the page lists one by one, and the sums of the others.
namespace vramscope::output {

// Which allocations are among the `limit` heaviest; in bounded memory. All are told first, then
// asked about in the same order: of those that weigh alike the first ones are.
class Heaviest {
 public:
  explicit Heaviest(size_t limit);
  void Add(double weight);
  void Close();
  bool Has(double weight);

 private:
  void Cut();

  size_t limit_;
  double floor_ = -1;
  size_t at_floor_ = 0;  // how many of those that weigh so much still are
  std::vector<double> weights_;
};

// Allocations that are not listed, as sums at stated instants: what changed at each, by site and
// segment. `fixed`: the instants that stay where there are too many changes.
class LeftOut {
 public:
  LeftOut(std::vector<int64_t> instants_ns, const std::set<int64_t>& fixed);

  void Count() { ++count_; }
  void Add(uint32_t site,
           uint32_t segment,
           uint64_t bytes,
           uint64_t count,
           int64_t begin_ns,
           int64_t end_ns);
  // Every second instant goes, until there are at most so many changes.
  void Thin(size_t most_changes);
  void Write(int64_t start_ns, util::JsonWriter& json) const;

 private:
  struct Change {
    int64_t bytes = 0;
    int64_t count = 0;
  };
  bool ThinOnce();
  // The first instant at or after.
  size_t FirstFrom(int64_t time_ns) const;

  std::vector<int64_t> instants_ns_;
  std::vector<bool> is_fixed_;
  std::map<std::pair<uint32_t, uint32_t>, std::map<size_t, Change>> changes_;
  uint64_t count_ = 0;
};

}  // namespace vramscope::output
