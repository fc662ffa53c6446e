// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace vramscope::util {

// An index into one kind of table, which cannot be mixed up with another kind's.
template <class Tag, class Rep = uint32_t>
struct StrongId {
  using Value = Rep;
  Rep value = 0;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep v) : value(v) {}
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

}  // namespace vramscope::util

template <class Tag, class Rep>
struct std::hash<vramscope::util::StrongId<Tag, Rep>> {
  size_t operator()(vramscope::util::StrongId<Tag, Rep> id) const noexcept {
    return std::hash<Rep>{}(id.value);
  }
};
