// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "query/diff/diff.h"
#include "query/diff/diff_side.h"

// How diff.cc finds out why two recordings differ, and says it in words: their rows side by side,
// growth over iterations, factors, and the sentences.
namespace vramscope::query {

// A row of both peaks.
struct ComparedRow {
  DiffKey key;
  DiffSum a;
  DiffSum b;
  bool told = false;  // it belongs to a cause
  int64_t delta() const { return static_cast<int64_t>(b.bytes) - static_cast<int64_t>(a.bytes); }
};

struct Comparison {
  const DiffWords& words;
  const DiffSide& a;
  const DiffSide& b;
  std::vector<ComparedRow> rows;
  uint64_t threshold_bytes = 0;
  uint64_t driver_threshold_bytes = 0;

  // B's line if B has one, since its source is the current one.
  const std::string& Line(uint32_t place) const;
};

// The same memory with another category: one row is gone, another is new, and only that differs.
// Pairs of indexes into `rows`.
std::vector<std::pair<size_t, size_t>> FindMoves(const Comparison& comparison);

// Sentences, that with the most bytes first. Each row counts in one of them; whatever adds up to no
// more than its threshold is left out.
std::vector<std::string> FindCauses(Comparison* comparison);

// "activations", "optimizer state".
const char* CategoryWords(format::Category category);

// The callers of the line of these rows: the frames of the user's own code at which their stacks
// part, the largest change first. Empty if all stacks are the same.
std::vector<DiffCaller> CallersOf(const Comparison& comparison, const std::vector<DiffKey>& keys);

// What grows from the end of one iteration to the next.
struct KeyGrowth {
  DiffKey key;
  double bytes_per_iteration = 0;  // beyond those of the other recording
  uint64_t last_bytes = 0;
};
// What grew between all the iterations looked at, in `side` more than in `other`.
std::vector<KeyGrowth> GrowingMore(const DiffSide& side, const DiffSide& other);

// What grew between all of them in both recordings, by the smaller rate.
std::vector<KeyGrowth> GrowingInBoth(const DiffSide& a, const DiffSide& b);

struct KeptMore {
  DiffKey key;
  DiffSum here;
  DiffSum other;
};
// What is alive at the end of the last iteration looked at, in `side` in more allocations.
std::vector<KeptMore> KeptBeyondIteration(const DiffSide& side, const DiffSide& other);

// The iterations to look at, if both recordings have `count`: as many as are needed to distinguish
// growth from a cache that fills.
std::vector<int64_t> IterationsToCompare(int64_t count);

// What a forward allocates is larger, or smaller, by one factor throughout.
struct Scale {
  enum class Kind : uint8_t {
    kWithParameters,  // parameters have other sizes, too
    kSequence,        // something grew with its square, or a table of positions with it
    kBatch,           // something that inputs are combined with did not
    kEither,          // nothing tells the two apart
  } kind = Kind::kEither;
  double ratio = 1;
  std::string evidence;
  std::set<DiffKey> keys;  // of what it explains, by WithoutLifetime()
};
// All parameters, and what the forward computes, have elements of a / b the size: 2 / 1 where bf16
// took the place of float32.
struct ElementSize {
  uint64_t a = 1;
  uint64_t b = 1;
};
std::optional<ElementSize> FindElementSize(const Comparison& comparison);

std::optional<Scale> FindScale(const Comparison& comparison);

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
  // "activations of encoder grew by 8.00 MiB", of the main category. "is gone" and "appeared" mean
  // that the other recording never allocated it.
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
