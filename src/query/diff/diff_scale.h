// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "query/diff/diff_causes.h"

namespace vramscope::query {

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

}  // namespace vramscope::query
