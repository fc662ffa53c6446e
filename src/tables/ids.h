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

// Rows of one table name rows of another by their index. Index 0 of every table is a row that says
// "none": the empty string, no stack, no thread, no process.
namespace vramscope::tables {

// Whether a column's type is the id of a row, of any table.
template <class T>
inline constexpr bool kIsId = requires(T id) {
  id.value;
};

using StringId = util::StrongId<struct StringTag>;
using HostId = util::StrongId<struct HostTag>;
using DeviceId = util::StrongId<struct DeviceTag>;
using ProcessId = util::StrongId<struct ProcessTag>;
using AccountId = util::StrongId<struct AccountTag>;
using ThreadId = util::StrongId<struct ThreadTag>;
using FrameId = util::StrongId<struct FrameTag>;
using StackId = util::StrongId<struct StackTag>;
using SiteId = util::StrongId<struct SiteTag>;
using SegmentId = util::StrongId<struct SegmentTag>;
using CounterId = util::StrongId<struct CounterTag>;
using NvtxCounterId = util::StrongId<struct NvtxCounterTag>;

}  // namespace vramscope::tables
