// SPDX-License-Identifier: Apache-2.0
#include "tables/table_checks.h"

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <vector>

namespace vramscope::tables {
namespace {

// More frames than any stack that is recorded: what walks a stack takes a time that is bounded.
constexpr uint32_t kMaxStackDepth = 65536;

size_t RowsOf(const Tables& tables, StringId) {
  return tables.strings.size();
}
size_t RowsOf(const Tables& tables, HostId) {
  return tables.hosts.size();
}
size_t RowsOf(const Tables& tables, DeviceId) {
  return tables.devices.size();
}
size_t RowsOf(const Tables& tables, ProcessId) {
  return tables.processes.size();
}
size_t RowsOf(const Tables& tables, AccountId) {
  return tables.accounts.size();
}
size_t RowsOf(const Tables& tables, ThreadId) {
  return tables.threads.size();
}
size_t RowsOf(const Tables& tables, FrameId) {
  return tables.frames.size();
}
size_t RowsOf(const Tables& tables, StackId) {
  return tables.stacks.size();
}
size_t RowsOf(const Tables& tables, SiteId) {
  return tables.sites.size();
}
size_t RowsOf(const Tables& tables, SegmentId) {
  return tables.segments.size();
}
size_t RowsOf(const Tables& tables, CounterId) {
  return tables.counters.size();
}

template <class Row, class Type>
bool IdsExist(const Tables& tables, const std::vector<Row>& rows, const Column<Row, Type>& column) {
  if constexpr (std::is_integral_v<Type>) {
    return true;
  } else {
    const size_t count = RowsOf(tables, Type{});
    return std::all_of(rows.begin(), rows.end(),
                       [&](const Row& row) { return (row.*column.field).value < count; });
  }
}

bool StacksAreTrees(const std::vector<StackRow>& stacks) {
  std::vector<uint32_t> depth(stacks.size());
  for (size_t i = 1; i < stacks.size(); ++i) {
    const uint32_t parent = stacks[i].parent.value;
    if (parent >= i)
      return false;
    depth[i] = depth[parent] + 1;
    if (depth[i] > kMaxStackDepth)
      return false;
  }
  return true;
}

template <class Value>
bool AllWithin(const std::vector<Value>& values, Value min, Value max) {
  bool within = true;
  for (const Value value : values)
    within &= min <= value && value <= max;
  return within;
}

}  // namespace

const char* FindBadReference(const Tables& tables) {
  const char* bad = nullptr;
  Tables::ForEach(tables, [&]<class Row>(const std::vector<Row>& rows) {
    const bool exist =
        std::apply([&](const auto&... columns) { return (IdsExist(tables, rows, columns) && ...); },
                   TableOf<Row>::Columns());
    if (!exist && bad == nullptr)
      bad = TableOf<Row>::kName;
  });
  if (bad == nullptr && !StacksAreTrees(tables.stacks))
    bad = TableOf<StackRow>::kName;
  return bad;
}

bool FrameMakesSense(const AllocationFrame& frame,
                     uint32_t wanted,
                     const FrameZone& zone,
                     const Tables& tables) {
  bool ok =
      AllWithin<int64_t>(frame.begin_ns, zone.min_begin_ns, zone.max_begin_ns) &&
      AllWithin<int64_t>(frame.end_ns, zone.min_end_ns, zone.max_end_ns) &&
      AllWithin<uint32_t>(frame.site, 0, static_cast<uint32_t>(tables.sites.size() - 1)) &&
      AllWithin<uint32_t>(frame.segment, 0, static_cast<uint32_t>(tables.segments.size() - 1));
  if ((wanted & kBeginNs) != 0 && (wanted & kEndNs) != 0) {
    for (size_t i = 0; i < frame.rows; ++i)
      ok &= frame.begin_ns[i] <= frame.end_ns[i];
  }
  return ok;
}

}  // namespace vramscope::tables
