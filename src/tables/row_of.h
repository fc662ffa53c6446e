// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "tables/recording.h"

namespace vramscope::tables {

// The row of a dictionary that has this number, or its row "none".
template <class Row>
const Row& RowOf(const std::vector<Row>& rows, size_t number) {
  return rows[number < rows.size() ? number : 0];
}
template <class Row, class Tag>
const Row& RowOf(const std::vector<Row>& rows, util::StrongId<Tag> id) {
  return RowOf(rows, id.value);
}

// A row of a frame; columns that were not asked for are 0.
inline AllocationRow RowOf(const AllocationFrame& frame, size_t i) {
  const auto at = [i](const auto& column) { return i < column.size() ? column[i] : 0; };
  AllocationRow row;
  row.begin_ns = at(frame.begin_ns);
  row.end_ns = at(frame.end_ns);
  row.alloc_ns = at(frame.alloc_ns);
  row.address = at(frame.address);
  row.bytes = at(frame.bytes);
  row.rounding_bytes = at(frame.rounding_bytes);
  row.site = SiteId{at(frame.site)};
  row.segment = SegmentId{at(frame.segment)};
  return row;
}

}  // namespace vramscope::tables
