// SPDX-License-Identifier: Apache-2.0
#include "tables/frame_codec.h"

#include <algorithm>

#include "tables/table_codec.h"

namespace vramscope::tables {

std::span<const uint8_t> FrameEncoder::Encode(std::span<AllocationRow> rows, IndexEntry* entry) {
  const auto by_end = [](const AllocationRow& a, const AllocationRow& b) {
    return a.end_ns != b.end_ns ? a.end_ns < b.end_ns : a.begin_ns < b.begin_ns;
  };
  if (!std::is_sorted(rows.begin(), rows.end(), by_end))
    std::sort(rows.begin(), rows.end(), by_end);
  EncodeRows<AllocationRow>(rows, &words_, &encoder_);
  *entry = {};
  entry->table = TableOf<AllocationRow>::kNumber;
  entry->rows = static_cast<uint32_t>(rows.size());
  FrameZone zone;
  for (const AllocationRow& row : rows) {
    zone.min_begin_ns = std::min(zone.min_begin_ns, row.begin_ns);
    zone.max_begin_ns = std::max(zone.max_begin_ns, row.begin_ns);
    zone.min_end_ns = std::min(zone.min_end_ns, row.end_ns);
    zone.max_end_ns = std::max(zone.max_end_ns, row.end_ns);
  }
  entry->min_begin_ns = zone.min_begin_ns;
  entry->max_begin_ns = zone.max_begin_ns;
  entry->min_end_ns = zone.min_end_ns;
  entry->max_end_ns = zone.max_end_ns;
  const std::span<const uint8_t> block = encoder_.Finish(&entry->crc);
  entry->bytes = static_cast<uint32_t>(block.size());
  return block;
}

bool DecodeFrame(const BlockHeaders& headers,
                 std::span<const uint8_t> block,
                 uint32_t rows,
                 uint32_t wanted,
                 AllocationFrame* out) {
  out->rows = rows;
  uint16_t number = 0;
  bool ok = true;
  const auto read = [&](auto* target) {
    const uint32_t column = uint32_t{1} << number++;
    if (!ok || (wanted & column) == 0) {
      target->clear();
      return;
    }
    target->assign(rows, 0);
    const BlockHeaders::Column* found = headers.Find(number);
    if (found == nullptr)
      return;
    using Value = std::make_unsigned_t<std::remove_reference_t<decltype((*target)[0])>>;
    ok = found->header.values == rows &&
         DecodeColumn(found->header, block.subspan(found->offset, found->header.bytes),
                      reinterpret_cast<Value*>(target->data()));
  };
  read(&out->begin_ns);
  read(&out->end_ns);
  read(&out->alloc_ns);
  read(&out->address);
  read(&out->bytes);
  read(&out->rounding_bytes);
  read(&out->site);
  read(&out->segment);
  return ok;
}

}  // namespace vramscope::tables
