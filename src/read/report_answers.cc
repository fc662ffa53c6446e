// SPDX-License-Identifier: Apache-2.0
// Results of query/ as tables, by the names that `report --json` has for them.
#include <algorithm>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "query/dimensions/dimensions.h"
#include "query/dimensions/frames.h"
#include "query/results.h"
#include "read/answer.h"

namespace vramscope::read {
namespace {

using query::DeviceIndex;

// The names that version 1 has for a few fields.
std::string NameOf(const std::string& name) {
  return name == "device"      ? "index"
         : name == "type"      ? "class"
         : name == "top_lines" ? "lines"
                               : name;
}

class Results {
 public:
  // `by`: what the elements of a path are.
  Results(const tables::Recording& recording, std::vector<query::Dimension> by, Answer* answer)
      : recording_(recording), stacks_(recording), by_(std::move(by)), answer_(answer) {}

  // A table for each list of rows that the result has.
  template <class Result>
  void Add(const Result& result) const {
    query::ResultOf<Result>::VisitFields([&](const auto& field) {
      const auto& rows = std::invoke(field.get, result);
      if constexpr (query::kIsRows<std::decay_t<decltype(rows)>>)
        AddRows(rows, &answer_->Add(NameOf(field.name)));
    });
  }

 private:
  template <class Row>
  void AddRows(const std::vector<Row>& rows, Table* table) const {
    query::VisitColumns<Row>([&]<class Form>(const std::string& name, const char* unit,
                                             std::type_identity<Form>,
                                             [[maybe_unused]] const auto& get) {
      if constexpr (std::is_same_v<Form, query::RowPath>) {
        AddPaths(rows, table);
      } else {
        Column& column = ColumnOf<Form>(NameOf(name), unit, table);
        for (const Row& row : rows)
          Put(get(row), &column);
      }
    });
  }

  // Columns of the path: by the dimensions, or level1, level2, ... where they are the ledger's.
  void AddPaths(const std::vector<query::ReportRow>& rows, Table* table) const {
    size_t levels = by_.size();
    for (const query::ReportRow& row : rows)
      levels = by_.empty() ? std::max(levels, row.path.size()) : levels;
    for (size_t level = 0; level < levels; ++level) {
      Column& column = table->Text(by_.empty() ? "level" + std::to_string(level + 1)
                                               : query::DimensionName(by_[level]));
      for (const query::ReportRow& row : rows)
        level < row.path.size() ? column.Text(row.path[level]) : column.Null();
    }
  }

  template <class Form>
  static Column& ColumnOf(const std::string& name, const char* unit, Table* table) {
    if constexpr (std::is_same_v<Form, tables::DeviceId>)
      return table->Int(name, unit);
    else if constexpr (std::is_same_v<Form, tables::ProcessId>)
      return table->Uint(name, unit);
    else if constexpr (!query::kIsNumber<Form>)
      return table->Text(name);
    else if constexpr (std::is_signed_v<Form> || std::is_same_v<Form, std::optional<int64_t>> ||
                       std::is_same_v<Form, std::optional<int32_t>>)
      return table->Int(name, unit);
    else
      return table->Uint(name, unit);
  }

  template <class Value>
  void Put(const Value& value, Column* column) const {
    if constexpr (std::is_same_v<Value, tables::DeviceId>)
      column->Number(int64_t{DeviceIndex(recording_, value)});
    else if constexpr (std::is_same_v<Value, tables::ProcessId>)
      column->Number(uint64_t{query::PidOf(recording_, value)});
    else if constexpr (std::is_same_v<Value, tables::StackId>)
      column->Text(StackText(value));
    else if constexpr (std::is_same_v<Value, tables::DeviceKind>)
      column->Text(query::DeviceKindName(value));
    else if constexpr (std::is_same_v<Value, std::string>)
      column->Text(value);
    else if constexpr (std::is_arithmetic_v<Value>)
      column->Number(static_cast<uint64_t>(value));
    else
      column->NumberOrNull(value);
  }

  std::string StackText(tables::StackId stack) const {
    std::string text;
    for (const std::string& frame : stacks_.Texts(stack))
      text += (text.empty() ? "" : ";") + frame;
    return text;
  }

  const tables::Recording& recording_;
  query::ShownStacks stacks_;
  std::vector<query::Dimension> by_;
  Answer* answer_;
};

}  // namespace

AnswerResult ReportAnswer(const tables::Recording& recording, const query::ReportQuery& query) {
  util::Result<query::Report> report = query::MakeReport(recording, query);
  if (!report)
    return report.status();
  query::CutRows(query.top, &report->rows);
  auto answer = std::make_unique<Answer>();
  Results(recording, query.by, answer.get()).Add(*report);
  return answer;
}

AnswerResult IterationsAnswer(const tables::Recording& recording) {
  const util::Result<query::Iterations> found = query::MakeIterations(recording);
  if (!found)
    return found.status();
  auto answer = std::make_unique<Answer>();
  Results(recording, {}, answer.get()).Add(*found);
  return answer;
}

AnswerResult PhasesAnswer(const tables::Recording& recording) {
  const util::Result<query::EnginePhases> found = query::MakePhases(recording);
  if (!found)
    return found.status();
  auto answer = std::make_unique<Answer>();
  Results(recording, {}, answer.get()).Add(*found);
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
