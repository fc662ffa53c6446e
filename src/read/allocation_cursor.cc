// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <unordered_map>

#include "read/answer.h"
#include "tables/row_of.h"

namespace vramscope::read {

AnswerResult AllocationCursor::Next() {
  tables::AllocationFrame frame;
  for (; next_ < recording_.frame_count(); ++next_) {
    const tables::FrameZone& zone = recording_.zone(next_);
    if (zone.min_begin_ns > to_ns_ || zone.max_end_ns <= from_ns_)
      continue;
    VRAMSCOPE_RETURN_IF_ERROR(recording_.Read(next_, tables::kAllColumns, &frame));
    std::vector<size_t> rows;
    for (size_t at = 0; at < frame.rows; ++at) {
      if (frame.begin_ns[at] <= to_ns_ && frame.end_ns[at] > from_ns_)
        rows.push_back(at);
    }
    if (rows.empty())
      continue;
    ++next_;
    return AnswerOf(frame, rows);
  }
  return std::unique_ptr<Answer>();
}

std::unique_ptr<Answer> AllocationCursor::AnswerOf(const tables::AllocationFrame& frame,
                                                   const std::vector<size_t>& rows) {
  const tables::Tables& tables = recording_.tables();
  auto answer = std::make_unique<Answer>();
  Table& table = answer->Add(tables::TableOf<tables::AllocationRow>::kName);
  Column& index = table.Int("index");
  Column& pid = table.Uint("pid");
  Column& backing = table.Uint("backing");
  Column& unbacked = table.Uint("unbacked");
  for (const size_t at : rows) {
    const tables::SiteRow& site = RowOf(tables.sites, frame.site[at]);
    const tables::AccountRow& account = RowOf(tables.accounts, site.account);
    index.Number(int64_t{RowOf(tables.devices, account.device).index});
    if (account.process.value != 0)
      pid.Number(uint64_t{RowOf(tables.processes, account.process).pid});
    else
      pid.Null();
    backing.Number(uint64_t{site.backing});
    unbacked.Number(uint64_t{site.unbacked});
  }
  const auto number = [&](Column& column, const auto& values) {
    for (const size_t at : rows)
      column.Number(values[at]);
  };
  number(table.Uint("address"), frame.address);
  number(table.Uint("bytes", "bytes"), frame.bytes);
  number(table.Uint("rounding_bytes", "bytes"), frame.rounding_bytes);
  number(table.Int("alloc_ns", "ns"), frame.alloc_ns);
  number(table.Int("begin_ns", "ns"), frame.begin_ns);
  number(table.Int("end_ns", "ns"), frame.end_ns);
  // Null if it was never freed: memory that is live at the end of its process ends with it.
  Column& free = table.Int("free_ns", "ns");
  Column& site = table.Int("site", "sites");
  Column& segment = table.Int("segment", "segments");
  for (const size_t at : rows) {
    const tables::AllocationRow row = tables::RowOf(frame, at);
    if (texts_.IsNeverFreed(RowOf(tables.sites, row.site), row))
      free.Null();
    else
      free.Number(row.end_ns);
    site.Number(int64_t{row.site.value});
    segment.Number(int64_t{row.segment.value});
  }
  for (const query::Dimension dimension : by_)
    AddTexts(dimension, frame, rows, &table.Text(query::DimensionName(dimension)));
  return answer;
}

// A text is made once for each value of the dimension that the frame has.
void AllocationCursor::AddTexts(query::Dimension dimension,
                                const tables::AllocationFrame& frame,
                                const std::vector<size_t>& rows,
                                Column* column) const {
  std::unordered_map<uint64_t, uint32_t> codes;
  for (const size_t at : rows) {
    const tables::AllocationRow row = tables::RowOf(frame, at);
    const tables::SiteRow& site = RowOf(recording_.tables().sites, row.site);
    const uint64_t value = texts_.Id(dimension, site, &row);
    auto found = codes.find(value);
    if (found == codes.end())
      found = codes.emplace(value, column->CodeOf(texts_.Text(dimension, value))).first;
    column->Code(found->second);
  }
}

}  // namespace vramscope::read
