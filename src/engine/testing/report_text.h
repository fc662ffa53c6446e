// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "engine/query/report.h"
#include "engine/testing/trace_builder.h"

// Reports in a form that tests compare at a glance.
namespace vramscope::engine {

inline std::unique_ptr<Analysis> Analyse(TraceBuilder& builder) {
  auto analysis = Analysis::Create(builder.Build());
  return analysis.ok() ? std::move(*analysis) : nullptr;
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
  auto analysis = Analyse(builder);
  auto report = analysis->MakeReport(query);
  return report.ok() ? *report : Report{};
}

inline std::string BrokenInvariants(const Report& report) {
  std::string text;
  for (const Invariant& invariant : report.invariants) {
    if (!invariant.holds)
      text += invariant.name + ": " + invariant.detail + "\n";
  }
  return text;
}

}  // namespace vramscope::engine
