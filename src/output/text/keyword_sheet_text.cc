// SPDX-License-Identifier: Apache-2.0
// The sheet for people.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "output/keywords.h"
#include "output/text/text_parts.h"
#include "util/size_text.h"
#include "util/text.h"

namespace vramscope::output {
namespace {

using query::KeywordTable;

// What is lost or listed beneath a table.
struct Named {
  uint64_t bytes = 0;
  uint64_t count = 0;
  std::set<size_t> columns;
};

class SheetText : public TextLines {
 public:
  SheetText(const std::vector<NamedKeywords>& reports, uint64_t top, const Style& style)
      : TextLines(style),
        reports_(reports),
        sheet_(MakeKeywordSheet(reports)),
        top_(top),
        blocks_of_(std::max<size_t>(1, RoomBeside(kNameColumns) / kCellColumns)) {}

  std::string Format();

 private:
  static constexpr size_t kNameColumns = 26;
  static constexpr size_t kCellBytesColumns = 10;
  static constexpr size_t kShareColumns = 8;
  static constexpr size_t kCellColumns = kCellBytesColumns + kShareColumns;
  static constexpr size_t kColumnsSaid = 8;  // that a name is in

  // A column of a line; empty without bytes.
  struct Cell {
    std::optional<int64_t> bytes;
    uint64_t whole = 0;
  };

  void AddColumns();
  void AddTable(const SheetTable& table);
  // The lines of a table for the columns from `first` on; one behind the last is that of all.
  void AddBlock(const SheetTable& table, size_t first, size_t end);
  void AddNamed(const std::string& title, const std::map<std::string, Named>& named);
  void AddOthers(const SheetTable& table);
  void AddOverlaps(const SheetTable& table);
  void AddLosses();
  uint64_t WholeOf(const SheetTable& table, size_t column) const;
  const query::KeywordDictionary& DictionaryOf(const SheetTable& table) const {
    return reports_[0].report.dictionaries[table.dictionary];
  }

  const std::vector<NamedKeywords>& reports_;
  KeywordSheet sheet_;
  uint64_t top_;
  size_t blocks_of_;  // columns side by side
};

void SheetText::AddColumns() {
  Add(fmt::format("{} recordings side by side", util::FormatCount(reports_.size())), Ink::kBold);
  for (size_t i = 0; i < sheet_.columns.size(); ++i) {
    const SheetColumn& column = sheet_.columns[i];
    const query::DeviceReport& device = *column.device;
    std::string when =
        fmt::format("{} {}", Clean(device.at_kind), util::FormatBytes(device.ledger_bytes));
    const size_t room = RoomBeside(util::DisplayWidth(when) + 8);
    Add(PadLeft(std::to_string(i + 1), 4) + "  " +
        PadRight(CutStart(Clean(column.name), room, style()), room) + "  " + when);
  }
  Add("");
}

uint64_t SheetText::WholeOf(const SheetTable& table, size_t column) const {
  if (column < table.columns.size()) {
    const KeywordTable& of = *table.columns[column];
    return of.expected_bytes.value_or(of.row_bytes);
  }
  uint64_t whole = 0;
  for (size_t i = 0; i < table.columns.size(); ++i)
    whole += WholeOf(table, i);
  return whole;
}

void SheetText::AddBlock(const SheetTable& table, size_t first, size_t end) {
  uint64_t largest_bytes = 0;
  for (size_t column = first; column < end; ++column)
    largest_bytes = std::max(largest_bytes, WholeOf(table, column));
  const Unit unit = TableUnit(largest_bytes);
  std::vector<TextColumn> all = {{.title = Clean(DictionaryOf(table).title) + ", " + unit.name,
                                  .width = kNameColumns - 3,
                                  .fit = Fit::kCutEnd,
                                  .gap = 2,
                                  .title_ink = Ink::kBold}};
  for (size_t column = first; column < end; ++column) {
    const std::string name =
        column == sheet_.columns.size()
            ? "Sum of columns"
            : fmt::format("{} {}", column + 1, Clean(sheet_.columns[column].name));
    all.push_back({.width = kCellBytesColumns + (column == first ? 1 : 0)});
    all.push_back({.title = CutEnd(name, kCellColumns - 2, style()), .width = kShareColumns});
  }
  TextTable lines(this, std::move(all));
  lines.AddTitles();
  const auto add_line = [&](const std::string& name, Ink ink, const auto& cell_of) {
    TextCells cells = {{Clean(name), ink}};
    for (size_t column = first; column < end; ++column) {
      const Cell cell = cell_of(column);
      cells.resize(cells.size() + 2);
      if (!cell.bytes)
        continue;
      const auto bytes = static_cast<uint64_t>(std::abs(*cell.bytes));
      const char* const sign = *cell.bytes < 0 ? "-" : "";
      const double share =
          cell.whole > 0 ? static_cast<double>(bytes) / static_cast<double>(cell.whole) : 0;
      cells[cells.size() - 2].text = sign + InUnit(bytes, unit.bytes);
      cells.back().text = sign + Percent(share);
    }
    lines.AddRow(std::move(cells));
  };
  const auto add = [&](const SheetLine& line, Ink ink) {
    add_line(line.name, ink, [&](size_t column) {
      const SheetFigure& figure = column < line.columns.size() ? line.columns[column] : line.all;
      return Cell{static_cast<int64_t>(figure.bytes), WholeOf(table, column)};
    });
  };
  for (const SheetLine& line : table.categories) {
    if (line.all.count > 0 || line.all.bytes > 0)
      add(line, Ink::kBar);
  }
  add(table.others, Ink::kDim);
  if (table.untrackable_bytes) {
    add_line(query::kUntrackable, Ink::kDim, [&](size_t column) {
      return Cell{column < table.columns.size() ? table.columns[column]->untrackable_bytes
                                                : table.untrackable_bytes,
                  WholeOf(table, column)};
    });
  }
  const bool all_expected =
      std::all_of(table.columns.begin(), table.columns.end(),
                  [](const KeywordTable* of) { return of->expected_bytes.has_value(); });
  const char* const total = !table.expected_bytes ? "All rows"
                            : all_expected        ? "Expected sum"
                                                  : "Expected, else all rows";
  add_line(total, Ink::kBold, [&](size_t column) {
    const uint64_t whole = WholeOf(table, column);
    return Cell{static_cast<int64_t>(whole), whole};
  });
  for (const SheetLine& line : table.groups)
    add(line, Ink::kBar);
}

void SheetText::AddTable(const SheetTable& table) {
  const size_t all = sheet_.columns.size() + (sheet_.columns.size() > 1 ? 1 : 0);
  for (size_t first = 0; first < all; first += blocks_of_) {
    AddBlock(table, first, std::min(all, first + blocks_of_));
    Add("");
  }
  std::string without;
  for (const SheetLine& line : table.categories) {
    if (line.all.count == 0 && line.all.bytes == 0)
      without += (without.empty() ? "" : ", ") + Clean(line.name);
  }
  if (!without.empty()) {
    AddCut("  Empty: " + without, Ink::kDim);
    Add("");
  }
  AddOverlaps(table);
  AddOthers(table);
}

// Largest first, each with the columns that it is of. Names are never cut.
void SheetText::AddNamed(const std::string& title, const std::map<std::string, Named>& named) {
  if (named.empty())
    return;
  std::vector<std::pair<std::string, const Named*>> items;
  for (const auto& [name, item] : named)
    items.emplace_back(name, &item);
  std::stable_sort(items.begin(), items.end(),
                   [](const auto& a, const auto& b) { return a.second->bytes > b.second->bytes; });
  const Unit unit = TableUnit(items[0].second->bytes);
  {
    std::vector<TextColumn> all = ListColumns(unit.name, title);
    all.push_back({.width = 0, .fit = Fit::kLeft});
    all.push_back({.fit = Fit::kLeft, .gap = 2, .ink = Ink::kDim});
    TextTable table(this, std::move(all));
    table.AddTitles();
    for (size_t i = 0; i < items.size() && (top_ == 0 || i < top_); ++i) {
      const auto& [name, item] = items[i];
      std::string of;
      size_t said = 0;
      for (const size_t column : item->columns) {
        if (said++ < kColumnsSaid)
          of += (of.empty() ? "" : ", ") + std::to_string(column + 1);
      }
      if (said == sheet_.columns.size())
        of = "all";
      else if (said > kColumnsSaid)
        of += fmt::format(" and {} more", said - kColumnsSaid);
      table.AddRow({{InUnit(item->bytes, unit.bytes)},
                    {util::FormatCount(item->count)},
                    {},
                    {Clean(name)},
                    {"in " + of}});
    }
    if (top_ != 0 && items.size() > top_)
      table.AddRest({{}, {}, {}, {fmt::format("({} more)", items.size() - top_)}});
  }
  Add("");
}

void SheetText::AddOthers(const SheetTable& table) {
  std::map<std::string, Named> named;
  for (size_t column = 0; column < table.columns.size(); ++column) {
    for (const query::KeywordEntry& entry : table.columns[column]->others.entries) {
      Named& item = named[entry.name];
      item.bytes += entry.bytes;
      item.count += entry.count;
      item.columns.insert(column);
    }
  }
  AddNamed(fmt::format("{}: matched by no keyword of {}", query::kOthers,
                       Clean(DictionaryOf(table).name)),
           named);
}

void SheetText::AddOverlaps(const SheetTable& table) {
  std::map<std::string, Named> named;
  for (size_t column = 0; column < table.columns.size(); ++column) {
    for (const query::KeywordOverlap& overlap : table.columns[column]->overlaps) {
      std::string name;
      for (const std::string& part : overlap.names)
        name += (name.empty() ? "" : " / ") + part;
      for (size_t i = 0; i < overlap.categories.size(); ++i)
        name += (i == 0 ? ": " : i == 1 ? ", not " : ", ") + overlap.categories[i];
      Named& item = named[name];
      item.bytes += overlap.bytes;
      item.count += overlap.count;
      item.columns.insert(column);
    }
  }
  AddNamed("Matched by several categories, counted in the first", named);
}

void SheetText::AddLosses() {
  size_t shown = 0;
  for (const NamedKeywords& named : reports_) {
    std::string of;
    for (size_t i = 0; i < sheet_.columns.size(); ++i) {
      if (sheet_.columns[i].of == &named)
        of += (of.empty() ? "" : ", ") + std::to_string(i + 1);
    }
    for (const query::Loss& loss : named.report.report.losses) {
      if (loss.count == 0 && loss.bytes == 0)
        continue;
      ++shown;
      AddCut(fmt::format("Lost in {}: {}: {}", of.empty() ? Clean(named.file) : of,
                         Clean(loss.name), util::FormatCount(loss.count)),
             Ink::kWarning);
    }
  }
  if (shown == 0)
    Add("Nothing was lost.");
}

std::string SheetText::Format() {
  AddColumns();
  for (const SheetTable& table : sheet_.tables)
    AddTable(table);
  AddLosses();
  return Take();
}

}  // namespace

std::string KeywordSheetText(const std::vector<NamedKeywords>& reports,
                             uint64_t top,
                             const Style& style) {
  return SheetText(reports, top, style).Format();
}

}  // namespace vramscope::output
