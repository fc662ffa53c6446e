// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "query/diff/diff_side.h"

// Why two recordings differ, in words.
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

  // B's line where it has it, since B is what people have before them.
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

}  // namespace vramscope::query
