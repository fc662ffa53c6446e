// SPDX-License-Identifier: Apache-2.0
#include "ledger/report_text.h"

#include <algorithm>
#include <utility>

#include "query/core/peaks.h"
#include "resolve/resolve.h"

namespace vramscope::query {

std::unique_ptr<tables::Recording> Analyse(TraceBuilder& builder) {
  auto recording = std::make_unique<tables::MemoryRecording>();
  const std::unique_ptr<trace::Trace> trace = builder.Build();
  util::Result<tables::Tables> tables = resolve::Resolve(*trace, *recording);
  if (!tables.ok())
    return nullptr;
  recording->Finish(*tables);
  tables->peaks = *FindPeaks(*recording);
  recording->Finish(std::move(*tables));
  return recording;
}

std::map<std::string, uint64_t> RowBytes(const Report& report) {
  std::map<std::string, uint64_t> rows;
  for (const ReportRow& row : report.rows) {
    std::string name;
    for (const std::string& level : row.path)
      name += (name.empty() ? "" : " / ") + level;
    rows[name] += row.bytes;
  }
  return rows;
}

ReportQuery At(const std::string& when) {
  ReportQuery query;
  query.at = *ParseInstant(when);
  return query;
}

Report ReportOf(TraceBuilder& builder, const ReportQuery& query) {
  const auto report = MakeReport(*Analyse(builder), query);
  return report.ok() ? *report : Report{};
}

std::vector<tables::AllocationRow> Allocations(const tables::Recording& recording) {
  std::vector<tables::AllocationRow> rows;
  for (size_t i = 0; i < recording.frame_count(); ++i) {
    tables::AllocationFrame frame;
    if (!recording.Read(i, tables::kAllColumns, &frame).ok())
      continue;
    for (size_t row = 0; row < frame.rows; ++row) {
      const tables::SiteId site{frame.site[row]};
      if (recording.tables().sites[site.value].backing != 0)
        continue;
      rows.push_back({frame.begin_ns[row], frame.end_ns[row], frame.alloc_ns[row],
                      frame.address[row], frame.bytes[row], frame.rounding_bytes[row], site,
                      tables::SegmentId{frame.segment[row]}});
    }
  }
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
  return rows;
}

std::string BrokenInvariants(const Report& report, const std::string& left_out) {
  std::string text;
  for (const Invariant& invariant : report.invariants) {
    if (!invariant.holds && invariant.name != left_out)
      text += invariant.name + ": " + invariant.detail + "\n";
  }
  return text;
}

}  // namespace vramscope::query
