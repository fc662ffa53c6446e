// SPDX-License-Identifier: Apache-2.0
#include "tables/memory_recording.h"

#include <algorithm>
#include <utility>

namespace vramscope::tables {

util::Status MemoryRecording::Add(const AllocationRow& row) {
  if (frames_.empty() || frames_.back().rows == rows_per_frame_) {
    frames_.emplace_back();
    zones_.emplace_back();
  }
  AllocationFrame& frame = frames_.back();
  ++frame.rows;
  frame.begin_ns.push_back(row.begin_ns);
  frame.end_ns.push_back(row.end_ns);
  frame.alloc_ns.push_back(row.alloc_ns);
  frame.address.push_back(row.address);
  frame.bytes.push_back(row.bytes);
  frame.rounding_bytes.push_back(row.rounding_bytes);
  frame.site.push_back(row.site.value);
  frame.segment.push_back(row.segment.value);
  FrameZone& zone = zones_.back();
  ++zone.rows;
  zone.min_begin_ns = std::min(zone.min_begin_ns, row.begin_ns);
  zone.max_begin_ns = std::max(zone.max_begin_ns, row.begin_ns);
  zone.min_end_ns = std::min(zone.min_end_ns, row.end_ns);
  zone.max_end_ns = std::max(zone.max_end_ns, row.end_ns);
  return {};
}

void MemoryRecording::Finish(Tables tables) {
  tables_ = std::move(tables);
  tables_.session.allocation_count = 0;
  for (const AllocationFrame& frame : frames_)
    tables_.session.allocation_count += frame.rows;
}

util::Status MemoryRecording::Read(size_t frame, uint32_t wanted, AllocationFrame* out) const {
  const AllocationFrame& from = frames_[frame];
  const auto copy = [&](uint32_t column, const auto& source, auto& target) {
    if ((wanted & column) != 0)
      target = source;
    else
      target.clear();
  };
  out->rows = from.rows;
  copy(kBeginNs, from.begin_ns, out->begin_ns);
  copy(kEndNs, from.end_ns, out->end_ns);
  copy(kAllocNs, from.alloc_ns, out->alloc_ns);
  copy(kAddress, from.address, out->address);
  copy(kBytes, from.bytes, out->bytes);
  copy(kRoundingBytes, from.rounding_bytes, out->rounding_bytes);
  copy(kSite, from.site, out->site);
  copy(kSegment, from.segment, out->segment);
  // Each row is its own.
  out->shape.clear();
  out->shapes.clear();
  for (uint32_t i = 0; (wanted & kShape) != 0 && i < from.rows; ++i) {
    out->shape.push_back(i);
    out->shapes.push_back({from.bytes[i], from.rounding_bytes[i], from.site[i], from.segment[i]});
  }
  return {};
}

}  // namespace vramscope::tables
