// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "query/diff_causes.h"

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
  std::set<DiffKey> keys;  // of what it explains
};
std::optional<Scale> FindScale(const Comparison& comparison);

}  // namespace vramscope::query
