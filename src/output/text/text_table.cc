// SPDX-License-Identifier: Apache-2.0
#include "output/text/text_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "util/size_text.h"
#include "util/text.h"

namespace vramscope::output {
namespace {

constexpr size_t kFewestColumns = 5;  // a text says nothing in fewer, and is left out

}  // namespace

void TextLines::Add(std::string_view line) {
  AppendLine(line, &text_);
  ++size_;
}

void TextLines::AddWrapped(std::string_view text, Ink ink) {
  Style style = style_;
  style.wraps = true;
  const std::string lines = Wrapped(text, 0, 0, style);
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    Add(lines.substr(begin, end - begin), ink);
    begin = end + 1;
  }
}

void TextLines::AddMore(size_t left_out) {
  if (left_out > 0)
    Add(fmt::format("  ({} more: --top 0 shows them)", util::FormatCount(left_out)), Ink::kDim);
}

size_t TextLines::RoomBeside(size_t other) const {
  return columns() - std::min(columns(), other);
}

void TextTable::AddTitles() {
  TextCells titles;
  for (const TextColumn& column : columns_)
    titles.push_back({column.title, column.title_ink});
  rows_.push_back({std::move(titles), {}, false, true});
}

void TextTable::AddRow(TextCells cells, std::optional<Ink> ink) {
  for (size_t i = 0; i < cells.size(); ++i) {
    std::optional<Ink>& of_cell = cells[i].ink;
    of_cell = ink ? ink : of_cell ? of_cell : columns_[i].ink;
  }
  rows_.push_back({std::move(cells)});
}

void TextTable::AddRest(TextCells cells, Ink ink) {
  AddRow(std::move(cells), ink);
  rows_.back().is_measured = false;
}

void TextTable::AddBelow(std::string text) {
  TextCells cells(columns_.size());
  cells.back().text = std::move(text);
  AddRest(std::move(cells));
}

void TextTable::FixWidths() {
  size_t at = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    TextColumn& column = columns_[i];
    at += column.gap;
    starts_.push_back(at);
    if (column.width == kRestOfLine)
      column.width = out_.RoomBeside(at);
    for (const Row& row : rows_) {
      if (row.is_measured && i < row.cells.size() && column.width < column.most)
        column.width =
            std::min(std::max(column.width, util::DisplayWidth(row.cells[i].text)), column.most);
    }
    at += column.width;
  }
}

std::string TextTable::Fitted(size_t column, const TextCell& cell, size_t room) const {
  const bool is_short = !cell.shorter.empty() && util::DisplayWidth(cell.text) > room;
  const std::string& text = is_short ? cell.shorter : cell.text;
  switch (columns_[column].fit) {
    case Fit::kCutEnd:
      return CutEnd(text, room, out_.style());
    case Fit::kCutStart:
      return CutStart(text, room, out_.style());
    case Fit::kCutMiddle:
      return CutMiddle(text, room, out_.style());
    case Fit::kWrap:
      return Wrapped(text, starts_[column], starts_[column], out_.style());
    case Fit::kRight:
    case Fit::kLeft:
      break;
  }
  return text;
}

size_t TextTable::BeginOf(size_t column, size_t width) const {
  const size_t end = starts_[column] + columns_[column].width;
  return columns_[column].fit == Fit::kRight ? end - std::min(end, width) : starts_[column];
}

// A title takes what the next one leaves free, and a rest line is short.
size_t TextTable::RoomOf(const Row& row, size_t column) const {
  if (!row.is_titles)
    return row.is_measured || columns_[column].most == 0 ? columns_[column].width : kRestOfLine;
  for (size_t next = column + 1; next < columns_.size(); ++next) {
    if (const size_t width = util::DisplayWidth(row.cells[next].text); width != 0) {
      const size_t begin = BeginOf(next, width);
      return begin - std::min(begin, starts_[column] + 1);
    }
  }
  return kRestOfLine;
}

void TextTable::WriteRow(const Row& row) {
  std::string line = row.line;
  size_t at = 0;  // columns that the line has
  for (size_t i = 0; i < row.cells.size(); ++i) {
    const TextColumn& column = columns_[i];
    const bool is_cut = column.fit != Fit::kRight && column.fit != Fit::kLeft;
    if (row.cells[i].text.empty() || (is_cut && column.width < kFewestColumns && !column.most))
      continue;
    const std::string text = Fitted(i, row.cells[i], RoomOf(row, i));
    const size_t width = util::DisplayWidth(text);
    const size_t begin = std::max(BeginOf(i, width), at + (at == 0 ? 0 : column.gap));
    line.append(begin - at, ' ');
    line += row.cells[i].ink ? Paint(text, *row.cells[i].ink, out_.style()) : text;
    at = begin + width;
  }
  out_.Add(line);
}

void TextTable::Write() {
  FixWidths();
  for (const Row& row : rows_)
    WriteRow(row);
}

namespace {

size_t LinesFor(const Section& section, size_t entries) {
  return entries * section.lines_per_entry + kSectionHeadLines + (entries < section.all ? 1 : 0);
}

size_t FewestLines(const Section& section) {
  return LinesFor(section, std::min(section.fewest, section.entries));
}

}  // namespace

std::vector<size_t> ShareLines(size_t lines, const std::vector<Section>& sections) {
  std::vector<size_t> shown(sections.size(), 0);
  std::vector<size_t> open;  // sections that are not settled yet
  for (size_t i = 0; i < sections.size(); ++i) {
    if (lines == 0)
      shown[i] = sections[i].entries;
    else if (sections[i].entries > 0)
      open.push_back(i);
  }
  const auto lighter = [&](size_t a, size_t b) { return sections[a].weight < sections[b].weight; };
  while (!open.empty()) {
    double weight = 0;
    for (const size_t i : open)
      weight += sections[i].weight;
    const auto share = [&](size_t i) {
      return static_cast<double>(lines) * sections[i].weight / weight;
    };
    const auto all_of_it = [&](size_t i) {
      return static_cast<double>(LinesFor(sections[i], sections[i].entries)) <= share(i);
    };
    const auto too_little = [&](size_t i) {
      return static_cast<double>(FewestLines(sections[i])) > share(i);
    };
    if (const auto found = std::find_if(open.begin(), open.end(), all_of_it); found != open.end()) {
      shown[*found] = sections[*found].entries;
      lines -= LinesFor(sections[*found], shown[*found]);
      open.erase(found);
      continue;
    }
    auto lightest = open.end();
    for (auto i = open.begin(); i != open.end(); ++i) {
      if (too_little(*i) && (lightest == open.end() || !lighter(*lightest, *i)))
        lightest = i;
    }
    if (lightest != open.end()) {
      open.erase(lightest);
      continue;
    }
    // Whole entries, and what that leaves to the heaviest that has room for it.
    size_t left = lines;
    for (const size_t i : open) {
      const auto share_lines = static_cast<size_t>(share(i));
      const size_t beside = LinesFor(sections[i], 0);
      shown[i] = std::max(share_lines, beside) - beside;
      shown[i] /= sections[i].lines_per_entry;
      // The last entry may take the place of the line that says "(1 more)".
      if (shown[i] < sections[i].entries && LinesFor(sections[i], shown[i] + 1) <= share_lines)
        ++shown[i];
      left -= LinesFor(sections[i], shown[i]);
    }
    std::stable_sort(open.begin(), open.end(), [&](size_t a, size_t b) { return lighter(b, a); });
    for (bool any = true; any;) {
      any = false;
      for (const size_t i : open) {
        if (sections[i].lines_per_entry > left || shown[i] == sections[i].entries)
          continue;
        ++shown[i];
        left -= sections[i].lines_per_entry;
        any = true;
      }
    }
    break;
  }
  return shown;
}

}  // namespace vramscope::output
