// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "util/strong_id.h"

// Rows of one table name rows of another by their index. Index 0 of every table is a row that says
// "none": the empty string, no stack, no thread, no process.
namespace vramscope::tables {

// Whether a column's type names a row, of whichever table.
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

}  // namespace vramscope::tables
