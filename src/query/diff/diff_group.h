// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "query/diff/diff_causes.h"

// Parts of the sentences of a diff.
namespace vramscope::query {

uint64_t Magnitude(int64_t bytes);
// "2.00x".
std::string Times(double ratio);
bool IsPlural(format::Category category);

// Some rows of one cause, and what they have in common.
struct DiffGroup {
  struct Bytes {
    uint64_t a = 0;
    uint64_t b = 0;
    uint64_t moved = 0;  // sum of what changed, whichever way
    int64_t delta() const { return static_cast<int64_t>(b) - static_cast<int64_t>(a); }
  };
  Bytes all;
  std::map<format::Category, Bytes> categories;
  std::map<std::string, uint64_t> modules;
  std::map<uint32_t, uint64_t> places;
  std::map<std::string, uint64_t> details;
  std::set<uint32_t> parameters;
  std::set<std::string> tags;
  std::vector<DiffKey> keys;

  void Add(const Comparison& comparison, const ComparedRow& row);
  int64_t delta() const { return all.delta(); }
  format::Category MainCategory() const;
  uint32_t MainPlace() const { return Largest(places); }
  // Nothing where no line has most of it; who calls it, where that is what changed.
  std::string Line(const Comparison& comparison) const;
  // " of blocks.[0-3] x4", or nothing.
  std::string OfModules() const;
  // "activations of encoder grew by 8.00 MiB" of the main category; "is gone" and "appeared" are
  // said of what the other recording never allocated.
  std::string Change(const Comparison& comparison) const;
  // " (inputs +2.00 MiB)": the other categories; nothing where there are none.
  std::string OtherCategories() const;

  template <class Key>
  static Key Largest(const std::map<Key, uint64_t>& weights) {
    return std::max_element(weights.begin(), weights.end(),
                            [](const auto& x, const auto& y) { return x.second < y.second; })
        ->first;
  }
};

}  // namespace vramscope::query
