// SPDX-License-Identifier: Apache-2.0
// Results of query/ as tables, by the names that `report --json` has for them.
#include <algorithm>
#include <string>
#include <utility>

#include "query/dimensions/device_names.h"
#include "query/history/by_category.h"
#include "read/answers.h"

namespace vramscope::read {
namespace {

using query::DeviceIndex;
using query::PidOf;

// One column of a table of results: calls put(column, row) for each.
template <class Rows, class Put>
void Fill(const Rows& rows, Column& column, const Put& put) {
  for (const auto& row : rows)
    put(column, row);
}

template <class Rows, class Get>
void Texts(Table* table, const char* name, const Rows& rows, const Get& get) {
  Fill(rows, table->Text(name), [&](Column& column, const auto& row) { column.Text(get(row)); });
}
template <class Rows, class Get>
void Uints(Table* table, const char* name, const char* unit, const Rows& rows, const Get& get) {
  Fill(rows, table->Uint(name, unit), [&](Column& column, const auto& row) {
    column.NumberOrNull(std::optional<uint64_t>(get(row)));
  });
}
template <class Rows, class Get>
void Ints(Table* table, const char* name, const char* unit, const Rows& rows, const Get& get) {
  Fill(rows, table->Int(name, unit), [&](Column& column, const auto& row) {
    column.NumberOrNull(std::optional<int64_t>(get(row)));
  });
}

template <class Rows>
void Index(Table* table, const tables::Recording& recording, const Rows& rows) {
  Ints(table, "index", "", rows,
       [&](const auto& row) { return DeviceIndex(recording, row.device); });
}
template <class Rows>
void Sums(Table* table, const Rows& rows) {
  Uints(table, "bytes", "bytes", rows, [](const auto& row) { return row.bytes; });
  Uints(table, "count", "", rows, [](const auto& row) { return row.count; });
}

void AddPeak(const std::string& name,
             std::optional<query::PeakFigure> query::DeviceReport::*peak,
             const std::vector<query::DeviceReport>& rows,
             Table* table) {
  Uints(table, (name + "_bytes").c_str(), "bytes", rows, [&](const auto& row) {
    return row.*peak ? std::optional<uint64_t>((row.*peak)->bytes) : std::nullopt;
  });
  Ints(table, (name + "_ns").c_str(), "ns", rows, [&](const auto& row) {
    return row.*peak ? std::optional<int64_t>((row.*peak)->time_ns) : std::nullopt;
  });
}

void AddDevices(const std::vector<query::DeviceReport>& rows, Answer* answer) {
  Table* const table = &answer->Add("devices");
  Ints(table, "index", "", rows, [](const auto& row) { return row.index; });
  Texts(table, "kind", rows, [](const auto& row) { return query::DeviceKindName(row.kind); });
  Texts(table, "uuid", rows, [](const auto& row) { return row.uuid; });
  Texts(table, "name", rows, [](const auto& row) { return row.name; });
  Uints(table, "total_bytes", "bytes", rows, [](const auto& row) { return row.total_bytes; });
  Uints(table, "nvml_bytes", "bytes", rows, [](const auto& row) { return row.nvml_bytes; });
  Uints(table, "ledger_bytes", "bytes", rows, [](const auto& row) { return row.ledger_bytes; });
  Ints(table, "residual_bytes", "bytes", rows, [](const auto& row) { return row.residual_bytes; });
  Ints(table, "in_transit_bytes", "bytes", rows,
       [](const auto& row) { return row.in_transit_bytes; });
  Uints(table, "allocated_bytes", "bytes", rows,
        [](const auto& row) { return row.allocated_bytes; });
  Uints(table, "reserved_bytes", "bytes", rows, [](const auto& row) { return row.reserved_bytes; });
  AddPeak("allocated_peak", &query::DeviceReport::allocated_peak, rows, table);
  AddPeak("own_peak", &query::DeviceReport::own_peak, rows, table);
  Uints(table, "unbacked_bytes", "bytes", rows, [](const auto& row) { return row.unbacked_bytes; });
  Texts(table, "at_kind", rows, [](const auto& row) { return row.at_kind; });
  Ints(table, "at_ns", "ns", rows, [](const auto& row) { return row.at_ns; });
  Ints(table, "at_iteration", "", rows, [](const auto& row) { return row.at_iteration; });
}

void AddProcesses(const tables::Recording& recording,
                  const std::vector<query::ProcessReport>& rows,
                  Answer* answer) {
  Table* const table = &answer->Add("processes");
  Index(table, recording, rows);
  Uints(table, "pid", "", rows, [](const auto& row) { return row.pid; });
  Ints(table, "rank", "", rows, [](const auto& row) { return row.rank; });
  Texts(table, "command", rows, [](const auto& row) { return row.command; });
  Uints(table, "nvml_bytes", "bytes", rows, [](const auto& row) { return row.nvml_bytes; });
  Uints(table, "ledger_bytes", "bytes", rows, [](const auto& row) { return row.ledger_bytes; });
  Ints(table, "residual_bytes", "bytes", rows, [](const auto& row) { return row.residual_bytes; });
}

// Columns of the path: by the dimensions, or level1, level2, ... where they are the ledger's.
void AddRows(const tables::Recording& recording,
             const query::ReportQuery& query,
             const char* name,
             const std::vector<query::ReportRow>& rows,
             Answer* answer) {
  Table* const table = &answer->Add(name);
  Index(table, recording, rows);
  Uints(table, "pid", "", rows, [](const auto& row) { return row.pid; });
  size_t levels = query.by.size();
  if (query.by.empty()) {
    for (const query::ReportRow& row : rows)
      levels = std::max(levels, row.path.size());
  }
  for (size_t level = 0; level < levels; ++level) {
    Column& column = table->Text(query.by.empty() ? "level" + std::to_string(level + 1)
                                                  : query::DimensionName(query.by[level]));
    for (const query::ReportRow& row : rows)
      level < row.path.size() ? column.Text(row.path[level]) : column.Null();
  }
  Sums(table, rows);
}

void AddPlaces(const tables::Recording& recording, const query::Report& report, Answer* answer) {
  Table* table = &answer->Add("categories");
  Index(table, recording, report.categories);
  Texts(table, "category", report.categories, [](const auto& row) { return row.category; });
  Sums(table, report.categories);
  table = &answer->Add("modules");
  Index(table, recording, report.top_modules);
  Texts(table, "module", report.top_modules, [](const auto& row) { return row.module; });
  Texts(table, "class", report.top_modules, [](const auto& row) { return row.type; });
  Sums(table, report.top_modules);
  table = &answer->Add("lines");
  Index(table, recording, report.top_lines);
  Texts(table, "line", report.top_lines, [](const auto& row) { return row.place; });
  Texts(table, "source", report.top_lines, [](const auto& row) { return row.source; });
  Sums(table, report.top_lines);
}

void AddTrust(const tables::Recording& recording, const query::Report& report, Answer* answer) {
  Table* table = &answer->Add("residuals");
  const std::vector<query::ResidualSummary>& rows = report.residuals;
  Index(table, recording, rows);
  Uints(table, "samples", "", rows, [](const auto& row) { return row.samples; });
  Uints(table, "samples_in_transit", "", rows,
        [](const auto& row) { return row.samples_in_transit; });
  Ints(table, "worst_bytes", "bytes", rows, [](const auto& row) { return row.worst_bytes; });
  Ints(table, "worst_at_ns", "ns", rows, [](const auto& row) { return row.worst_at_ns; });
  Uints(table, "p99_bytes", "bytes", rows, [](const auto& row) { return row.p99_bytes; });
  Uints(table, "estimated_bytes", "bytes", rows,
        [](const auto& row) { return row.estimated_bytes; });
  Uints(table, "ledger_peak_bytes", "bytes", rows,
        [](const auto& row) { return row.ledger_peak_bytes; });
  table = &answer->Add("losses");
  Texts(table, "name", report.losses, [](const auto& row) { return row.name; });
  Sums(table, report.losses);
  table = &answer->Add("invariants");
  Texts(table, "name", report.invariants, [](const auto& row) { return row.name; });
  Uints(table, "holds", "", report.invariants,
        [](const auto& row) { return uint64_t{row.holds ? 1U : 0U}; });
  Texts(table, "detail", report.invariants, [](const auto& row) { return row.detail; });
}

}  // namespace

AnswerResult ReportAnswer(const tables::Recording& recording, const query::ReportQuery& query) {
  util::Result<query::Report> report = query::MakeReport(recording, query);
  if (!report)
    return report.status();
  query::CutRows(query.top, &report->rows);
  auto answer = std::make_unique<Answer>();
  AddDevices(report->devices, answer.get());
  AddProcesses(recording, report->processes, answer.get());
  AddRows(recording, query, "rows", report->rows, answer.get());
  AddRows(recording, query, "unbacked", report->unbacked, answer.get());
  AddPlaces(recording, *report, answer.get());
  AddTrust(recording, *report, answer.get());
  return answer;
}

AnswerResult IterationsAnswer(const tables::Recording& recording) {
  const util::Result<query::Iterations> found = query::MakeIterations(recording);
  if (!found)
    return found.status();
  auto answer = std::make_unique<Answer>();
  Table* table = &answer->Add("iterations");
  const std::vector<query::Iteration>& rows = found->iterations;
  const auto pid = [&](const auto& row) { return PidOf(recording, row.process); };
  const auto bytes = [&](const char* name, uint64_t query::Iteration::*field) {
    Uints(table, name, "bytes", rows, [&](const auto& row) { return row.*field; });
  };
  const auto instant = [&](const char* name, int64_t query::Iteration::*field) {
    Ints(table, name, "ns", rows, [&](const auto& row) { return row.*field; });
  };
  Ints(table, "number", "", rows, [](const auto& row) { return row.number; });
  Uints(table, "pid", "", rows, pid);
  Index(table, recording, rows);
  instant("begin_ns", &query::Iteration::begin_ns);
  instant("end_ns", &query::Iteration::end_ns);
  bytes("peak_bytes", &query::Iteration::peak_bytes);
  instant("peak_ns", &query::Iteration::peak_ns);
  bytes("end_bytes", &query::Iteration::end_bytes);
  bytes("peak_allocated", &query::Iteration::peak_allocated);
  bytes("end_allocated", &query::Iteration::end_allocated);
  bytes("peak_reserved", &query::Iteration::peak_reserved);
  bytes("end_reserved", &query::Iteration::end_reserved);
  bytes("backward_temporary_peak", &query::Iteration::backward_temporary_peak);
  bytes("before_recording_peak", &query::Iteration::before_recording_peak);
  const auto by_category = [&](const char* suffix, std::vector<uint64_t> query::Iteration::*field) {
    for (const format::Category category : format::kAllCategories) {
      Uints(table, query::CategoryColumn(category, suffix).c_str(), "bytes", rows,
            [&](const auto& row) { return query::BytesOf(row.*field, category); });
    }
  };
  by_category("_peak", &query::Iteration::category_peak);
  by_category("_end", &query::Iteration::category_end);

  table = &answer->Add("parameters");
  const std::vector<query::ParameterBytes>& parameters = found->parameters;
  Texts(table, "name", parameters, [](const auto& row) { return row.name; });
  Uints(table, "pid", "", parameters, pid);
  Index(table, recording, parameters);
  Uints(table, "parameter", "bytes", parameters, [](const auto& row) { return row.parameter; });
  Uints(table, "gradient", "bytes", parameters, [](const auto& row) { return row.gradient; });
  Uints(table, "optimizer_state", "bytes", parameters,
        [](const auto& row) { return row.optimizer_state; });
  return answer;
}

AnswerResult TimelineAnswer(const tables::Recording& recording, size_t buckets) {
  const util::Result<std::vector<query::Timeline>> timelines =
      query::MakeTimelines(recording, buckets);
  if (!timelines)
    return timelines.status();
  auto answer = std::make_unique<Answer>();
  Table& bands = answer->Add("timeline");
  Column& index = bands.Int("index");
  Column& begin = bands.Int("begin_ns", "ns");
  Column& peak = bands.Int("peak_ns", "ns");
  Column& band = bands.Text("band");
  Column& bytes = bands.Uint("bytes", "bytes");
  Table& nvml = answer->Add("nvml");
  Column& sample_index = nvml.Int("index");
  Column& sample_time = nvml.Int("time_ns", "ns");
  Column& sample_bytes = nvml.Uint("bytes", "bytes");
  for (const query::Timeline& timeline : *timelines) {
    for (size_t bucket = 0; bucket < timeline.time_ns.size(); ++bucket) {
      for (size_t group = 0; group < timeline.groups.size(); ++group) {
        index.Number(int64_t{DeviceIndex(recording, timeline.device)});
        begin.Number(timeline.time_ns[bucket]);
        peak.Number(timeline.peak_ns[bucket]);
        band.Text(timeline.groups[group]);
        bytes.Number(timeline.peak[group][bucket]);
      }
    }
    for (const auto& [time_ns, used_bytes] : timeline.nvml) {
      sample_index.Number(int64_t{DeviceIndex(recording, timeline.device)});
      sample_time.Number(time_ns);
      sample_bytes.Number(used_bytes);
    }
  }
  return answer;
}

}  // namespace vramscope::read
