// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format/memory_words.h"
#include "ledger/trace_builder.h"
#include "query/instant.h"
#include "query/peaks.h"
#include "query/report.h"
#include "resolve/resolve.h"
#include "tables/memory_recording.h"

// Reports in a form that tests compare at a glance.
namespace vramscope::query {

// A trace's recording, resolved.
inline std::unique_ptr<tables::Recording> Analyse(TraceBuilder& builder) {
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

// "PyTorch / allocated" -> bytes; rows of several devices or processes add up.
inline std::map<std::string, uint64_t> RowBytes(const Report& report) {
  std::map<std::string, uint64_t> rows;
  for (const ReportRow& row : report.rows) {
    std::string name;
    for (const std::string& level : row.path)
      name += (name.empty() ? "" : " / ") + level;
    rows[name] += row.bytes;
  }
  return rows;
}

inline ReportQuery At(const std::string& when) {
  ReportQuery query;
  query.at = *ParseInstant(when);
  return query;
}

inline Report ReportOf(TraceBuilder& builder, const ReportQuery& query = {}) {
  const auto report = MakeReport(*Analyse(builder), query);
  return report.ok() ? *report : Report{};
}

// All rows of `allocations` that are in somebody's hands, in the order in which they begin.
inline std::vector<tables::AllocationRow> Allocations(const tables::Recording& recording) {
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

constexpr const char* kBesideNvml = "rows + residual = NVML at every sample";

// Beside processes that nobody records NVML's figures are of them too: then that one is `left_out`.
inline std::string BrokenInvariants(const Report& report, const std::string& left_out = "") {
  std::string text;
  for (const Invariant& invariant : report.invariants) {
    if (!invariant.holds && invariant.name != left_out)
      text += invariant.name + ": " + invariant.detail + "\n";
  }
  return text;
}

}  // namespace vramscope::query
