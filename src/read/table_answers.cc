// SPDX-License-Identifier: Apache-2.0
// The tables of tables.def by their names, as they are.
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "format/memory_words.h"
#include "read/answer.h"

namespace vramscope::read {
namespace {

constexpr char kSession[] = "session";
constexpr char kTables[] = "tables";
constexpr char kWords[] = "words";

template <class Type>
constexpr uint32_t TypeOf() {
  if constexpr (std::is_same_v<Type, tables::StringId>)
    return VRAMSCOPE_TEXT;
  else if constexpr (tables::kIsId<Type> || std::is_signed_v<Type>)
    return VRAMSCOPE_INT64;  // row numbers too
  else
    return VRAMSCOPE_UINT64;
}

constexpr const char* TypeName(uint32_t type) {
  return type == VRAMSCOPE_TEXT ? "text" : type == VRAMSCOPE_INT64 ? "int64" : "uint64";
}

template <class Row, class Type>
void AddColumn(const tables::Recording& recording,
               const std::vector<Row>& rows,
               const tables::Column<Row, Type>& from,
               Table* table) {
  if constexpr (std::is_same_v<Type, tables::StringId>) {
    Column& column = table->Text(from.name);
    for (const Row& row : rows)
      column.Text(recording.string(row.*from.field));
  } else if constexpr (tables::kIsId<Type>) {
    Column& column = table->Int(from.name, from.unit);
    for (const Row& row : rows)
      column.Number(int64_t{(row.*from.field).value});
  } else if constexpr (std::is_signed_v<Type>) {
    Column& column = table->Int(from.name, from.unit);
    for (const Row& row : rows)
      column.Number(int64_t{row.*from.field});
  } else {
    Column& column = table->Uint(from.name, from.unit);
    for (const Row& row : rows)
      column.Number(static_cast<uint64_t>(row.*from.field));
  }
}

template <class Row>
void AddTable(const tables::Recording& recording, const std::vector<Row>& rows, Answer* answer) {
  Table& table = answer->Add(tables::TableOf<Row>::kName);
  tables::TableOf<Row>::VisitColumns(
      [&](const auto& column) { AddColumn(recording, rows, column, &table); });
}

void AddSession(const tables::Session& session, Answer* answer) {
  Table& table = answer->Add(kSession);
  table.Text("name").Text(session.name);
  table.Text("version").Text(session.version);
  table.Int("begin_ns", "ns").Number(session.begin_ns);
  table.Int("end_ns", "ns").Number(session.end_ns);
  table.Int("begin_wall_ns", "ns").Number(session.begin_wall_ns);
  table.Uint("finished").Number(uint64_t{session.finished ? 1U : 0U});
  table.Uint("events").Number(session.event_count);
  table.Uint("allocations").Number(session.allocation_count);
}

void AddNames(const tables::Tables& tables, Answer* answer) {
  Table& table = answer->Add(kTables);
  Column& names = table.Text("table");
  Column& columns = table.Text("column");
  Column& types = table.Text("type");
  Column& units = table.Text("unit");
  Column& meanings = table.Text("meaning");
  const auto add_table = [&]<class Row>(const std::vector<Row>&) {
    const auto add = [&]<class Type>(const tables::Column<Row, Type>& column) {
      names.Text(tables::TableOf<Row>::kName);
      columns.Text(column.name);
      types.Text(TypeName(TypeOf<Type>()));
      units.Text(column.unit);
      meanings.Text(column.text);
    };
    tables::TableOf<Row>::VisitColumns(add);
  };
  tables::Tables::ForEach(tables, add_table);
  add_table(std::vector<tables::AllocationRow>());
}

// The meaning of the numbers in these columns of `sites`.
void AddWords(Answer* answer) {
  Table& table = answer->Add(kWords);
  Column& columns = table.Text("column");
  Column& numbers = table.Uint("number");
  Column& words = table.Text("word");
  const auto add = [&](const char* column, auto number, const char* word) {
    columns.Text(column);
    numbers.Number(static_cast<uint64_t>(number));
    words.Text(word);
  };
  for (const format::Category category : format::kAllCategories)
    add("category", category, format::CategoryName(category));
  for (const format::Part part : format::kAllParts)
    add("part", part, format::PartName(part));
  for (const format::Phase phase : format::kAllPhases)
    add("phase", phase, format::PhaseName(phase));
}

template <class Values>
void AddNumbers(const Values& values, Column* column) {
  for (const auto value : values) {
    if constexpr (std::is_signed_v<std::decay_t<decltype(value)>>)
      column->Number(int64_t{value});
    else
      column->Number(uint64_t{value});
  }
}

}  // namespace

std::unique_ptr<Answer> AllocationsAnswer(const tables::AllocationFrame& frame) {
  auto answer = std::make_unique<Answer>();
  Table& table = answer->Add(tables::TableOf<tables::AllocationRow>::kName);
  std::vector<Column*> columns;
  const auto add = [&]<class Type>(const tables::Column<tables::AllocationRow, Type>& column) {
    columns.push_back(TypeOf<Type>() == VRAMSCOPE_INT64 ? &table.Int(column.name, column.unit)
                                                        : &table.Uint(column.name, column.unit));
  };
  tables::TableOf<tables::AllocationRow>::VisitColumns(add);
  // In the order of tables.def.
  AddNumbers(frame.begin_ns, columns[0]);
  AddNumbers(frame.end_ns, columns[1]);
  AddNumbers(frame.alloc_ns, columns[2]);
  AddNumbers(frame.address, columns[3]);
  AddNumbers(frame.bytes, columns[4]);
  AddNumbers(frame.rounding_bytes, columns[5]);
  AddNumbers(frame.site, columns[6]);
  AddNumbers(frame.segment, columns[7]);
  return answer;
}

AnswerResult TableAnswer(const tables::Recording& recording, const std::string& name) {
  auto answer = std::make_unique<Answer>();
  if (name == kSession)
    AddSession(recording.tables().session, answer.get());
  if (name == kTables)
    AddNames(recording.tables(), answer.get());
  if (name == kWords)
    AddWords(answer.get());
  bool found = name == kSession || name == kTables || name == kWords;
  tables::Tables::ForEach(recording.tables(), [&](const auto& rows) {
    using Row = typename std::decay_t<decltype(rows)>::value_type;
    if (name != tables::TableOf<Row>::kName)
      return;
    AddTable(recording, rows, answer.get());
    found = true;
  });
  if (name == tables::TableOf<tables::AllocationRow>::kName) {
    return util::Status::Error(
        "the table 'allocations' may be larger than memory: read it with a cursor");
  }
  if (!found) {
    return util::Status::Error("no table is named '" + name +
                               "': the table 'tables' lists all names");
  }
  return answer;
}

}  // namespace vramscope::read
