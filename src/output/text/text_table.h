// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "output/terminal.h"

// What texts for people are laid out with: lines, tables, and the sections of a screen.
namespace vramscope::output {

// The lines of a text for people. The writers of texts derive from it.
class TextLines {
 public:
  explicit TextLines(const Style& style) : style_(style) {}

  // Without the blanks at its end, which are invisible until they wrap.
  void Add(std::string_view line);
  void Add(std::string_view line, Ink ink) { Add(Paint(line, ink, style_)); }
  // What the screen has no room for is cut.
  void AddCut(std::string_view line) { Add(CutEnd(line, columns(), style_)); }
  void AddCut(std::string_view line, Ink ink) { Add(CutEnd(line, columns(), style_), ink); }
  // As many lines as it takes; none for no text.
  void AddWrapped(std::string_view text, Ink ink);

  // What a list leaves out, unless it is 0.
  void AddMore(size_t left_out);

  const Style& style() const { return style_; }
  size_t columns() const { return static_cast<size_t>(style_.columns); }
  // What the screen has left beside `columns`.
  size_t RoomBeside(size_t columns) const;
  std::string Clean(std::string_view text) const { return Printable(text, style_.utf8); }
  size_t size() const { return size_; }  // lines
  std::string Take() { return std::move(text_); }

 private:
  const Style& style_;
  std::string text_;
  size_t size_ = 0;
};

// How a cell fits its column: figures are aligned right, texts left.
enum class Fit : uint8_t {
  kRight,
  kLeft,
  kCutEnd,
  kCutStart,
  kCutMiddle,
  kWrap,  // continues on the next line: in the last column
};

inline constexpr size_t kRestOfLine = SIZE_MAX;
// Widths that several tables share.
inline constexpr size_t kBytesColumns = 11;
inline constexpr size_t kMarkColumns = 6;
inline constexpr size_t kBarColumns = 10;

struct TextColumn {
  std::string title{};
  // Fixed; with `most` the least of it, which the widest cell decides.
  size_t width = kRestOfLine;
  size_t most = 0;
  Fit fit = Fit::kRight;
  size_t gap = 0;  // blanks before it
  std::optional<Ink> ink{};
  Ink title_ink = Ink::kDim;
};

struct TextCell {
  std::string text{};
  std::optional<Ink> ink{};  // instead of the column's
  std::string shorter{};     // instead of the text, where that has no room
};
using TextCells = std::vector<TextCell>;

// Columns beside each other. A list begins with its figures, a table with its names:
//
//       MiB    count  Top lines                             category      MiB   share
//     512.0        4  model.py:42 in forward                activation  512.0  51.2 %
//                     < train.py:10 in main                 (2 more)    488.0  48.8 %
//      12.0       31  (7 more)
//
// The lines come out when it is destroyed: widths need all cells.
class TextTable {
 public:
  TextTable(TextLines* out, std::vector<TextColumn> columns)
      : out_(*out), columns_(std::move(columns)) {}
  ~TextTable() { Write(); }
  TextTable(const TextTable&) = delete;
  TextTable& operator=(const TextTable&) = delete;

  void AddTitles();
  // `ink`: of all its cells.
  void AddRow(TextCells cells, std::optional<Ink> ink = {});
  // The row of what has none of its own, or of the sum: it widens no column.
  void AddRest(TextCells cells, Ink ink = Ink::kDim);
  // A dim text in the last column, below the row before it.
  void AddBelow(std::string text);
  // A line without columns.
  void AddLine(std::string line) { rows_.push_back({{}, std::move(line)}); }

 private:
  struct Row {
    TextCells cells;
    std::string line{};  // without cells
    bool is_measured = true;
    bool is_titles = false;
  };

  void Write();
  void FixWidths();
  void WriteRow(const Row& row);
  size_t BeginOf(size_t column, size_t width) const;
  size_t RoomOf(const Row& row, size_t column) const;
  std::string Fitted(size_t column, const TextCell& cell, size_t room) const;

  TextLines& out_;
  std::vector<TextColumn> columns_;
  std::vector<size_t> starts_;  // where each column begins
  std::vector<Row> rows_;
};

// How the lines of a screen are shared out among the sections of a report:
//
//   1. What a section takes is its entries and two lines more, its head and an empty one; a list
//      that is cut has one more line, which says so.
//   2. All lines are shared out by weight. A section that needs less than its share gives the rest
//      to the others.
//   3. A section whose share has no room for its fewest entries is left out, the lightest first,
//      and the others have its lines.
struct Section {
  double weight = 1;
  size_t entries = 0;  // that there are; 0: no such section
  size_t fewest = 1;   // with less than these it says too little to be there
  size_t lines_per_entry = 1;
  size_t all = 0;  // with fewer entries than these the section has a "(n more)" line
};

inline constexpr size_t kSectionHeadLines = 2;

// The entries that each section shows. `lines` 0: no limit, as in a file.
std::vector<size_t> ShareLines(size_t lines, const std::vector<Section>& sections);

}  // namespace vramscope::output
