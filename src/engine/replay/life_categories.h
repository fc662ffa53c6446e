// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/model/flat_map.h"
#include "engine/model/parts.h"
#include "engine/model/records.h"

namespace vramscope::engine {

// The category of every life by its number, one byte each, for replays that need it from the life's
// first moment on: categories are decided at its end.
class LifeCategories {
 public:
  explicit LifeCategories(size_t processes) : knows_(processes) {}

  void Set(uint64_t life, const Origin& origin, uint64_t rounding) {
    if (life >= categories_.size())
      categories_.resize(std::max<size_t>(life + 1, categories_.size() + categories_.size() / 2),
                         Both(Category::kUnknown, Category::kUnknown));
    categories_[life] = Both(origin.category, origin.without_phases);
    if (rounding != 0)
      rounding_.FindOrAdd(life) =
          static_cast<uint32_t>(std::min<uint64_t>(rounding, FlatMap::kNone - 1));
  }
  void SetKnown(trace::ProcessId process, bool knows) { knows_[process.value] = knows; }

  Category Of(trace::ProcessId process, uint64_t life) const {
    if (life >= categories_.size())
      return Category::kUnknown;
    const uint8_t both = categories_[life];
    return static_cast<Category>(knows_[process.value] ? both >> 4 : both & 15);
  }
  // Bytes beyond what was asked for, where that is known.
  uint64_t RoundingOf(uint64_t life) const {
    const uint32_t rounding = rounding_.Find(life);
    return rounding == FlatMap::kNone ? 0 : rounding;
  }

 private:
  static uint8_t Both(Category category, Category without_phases) {
    return static_cast<uint8_t>(static_cast<uint8_t>(category) << 4 |
                                static_cast<uint8_t>(without_phases));
  }
  static_assert(kCategories <= 16);

  std::vector<uint8_t> categories_;  // its category, and that without phases, four bits each
  FlatMap rounding_;                 // life -> bytes
  std::vector<bool> knows_;          // by process: something told its phases
};

}  // namespace vramscope::engine
