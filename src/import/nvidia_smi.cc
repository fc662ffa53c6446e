// SPDX-License-Identifier: Apache-2.0 Reads the repeated output of `nvidia-smi` in each of its
// forms:
//
//   --query-gpu=... --format=csv          --query-gpu=memory.used --format=csv,noheader
//   timestamp, index, memory.used [MiB]   230 MiB
//   2024/05/01 10:00:00.123, 0, 230 MiB
//
//   dmon -s m, pmon -s m                  the plain table
//   # gpu     fb   bar1                   |   0  Tesla T4            Off  | 00000000:00:1E.0 Off |
//   # Idx     MB     MB                   | N/A   36C    P8     9W /  70W |    450MiB / 15109MiB |
//       0    450     10
//
// CSV may lack clock, device number, units and header. Other lines may precede the first row.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "import/import.h"
#include "import/log_text.h"
#include "import/reading_log.h"
#include "util/size_text.h"

namespace vramscope::imports {
namespace {

constexpr char kLostRows[] = "rows that are no reading of nvidia-smi";
constexpr char kNoFigures[] = "readings without a figure";
constexpr char kNoFigureWhy[] =
    "nvidia-smi has no figure for memory.used: this GPU shares the system's memory, or the figure "
    "needs more rights";
// The most lines of a job script before the first row.
constexpr uint64_t kMostPreambleLines = 64;

enum class Column : uint8_t {
  kOther,
  kTime,
  kDate,
  kTimeOfDay,
  kIndex,
  kUuid,
  kBus,
  kName,
  kUsed,
  kTotal,
  kPid,
  kProcess
};

struct ColumnName {
  std::string_view name;
  Column column;
};
constexpr ColumnName kColumnNames[] = {
    {"timestamp", Column::kTime},
    {"index", Column::kIndex},
    {"gpu_index", Column::kIndex},
    {"gpu_uuid", Column::kUuid},
    {"uuid", Column::kUuid},
    {"gpu_bus_id", Column::kBus},
    {"pci.bus_id", Column::kBus},
    {"gpu_name", Column::kName},
    {"name", Column::kName},
    {"memory.used", Column::kUsed},
    {"used_memory", Column::kUsed},
    {"used_gpu_memory", Column::kUsed},
    {"memory.total", Column::kTotal},
    {"pid", Column::kPid},
    {"process_name", Column::kProcess},
};
constexpr ColumnName kMonitorColumns[] = {
    {"gpu", Column::kIndex},       {"fb", Column::kUsed},        {"pid", Column::kPid},
    {"command", Column::kProcess}, {"Date", Column::kDate},      {"date", Column::kDate},
    {"Time", Column::kTimeOfDay},  {"time", Column::kTimeOfDay},
};

template <size_t kCount>
Column FindColumn(const ColumnName (&names)[kCount], std::string_view title) {
  const auto* const found =
      std::find_if(std::begin(names), std::end(names),
                   [&](const ColumnName& known) { return known.name == title; });
  return found == std::end(names) ? Column::kOther : found->column;
}

bool Has(const std::vector<Column>& columns, Column column) {
  return std::find(columns.begin(), columns.end(), column) != columns.end();
}

// Empty if the line is not a CSV header.
std::vector<Column> HeaderOf(std::string_view line) {
  std::vector<Column> columns;
  for (const std::string& cell : SplitCsv(line))
    columns.push_back(
        FindColumn(kColumnNames, Trimmed(std::string_view(cell).substr(0, cell.find('[')))));
  return Has(columns, Column::kUsed) ? columns : std::vector<Column>();
}

std::vector<std::string> SplitBlanks(std::string_view line) {
  std::vector<std::string> words;
  while (!(line = Trimmed(line)).empty()) {
    words.emplace_back(line.substr(0, line.find_first_of(" \t")));
    line.remove_prefix(words.back().size());
  }
  return words;
}

// "# gpu     pid  type    fb   command". Empty if the line is not a header of dmon or pmon.
std::vector<Column> MonitorHeaderOf(std::string_view line) {
  line = Trimmed(line);
  if (!line.starts_with("#"))
    return {};
  std::vector<Column> columns;
  for (const std::string& word : SplitBlanks(line.substr(1)))
    columns.push_back(FindColumn(kMonitorColumns, word));
  return Has(columns, Column::kUsed) && Has(columns, Column::kIndex) ? columns
                                                                     : std::vector<Column>();
}

struct Figure {
  uint64_t bytes = 0;
  bool has_unit = false;
};

// "230 MiB", "450MiB", "230": nvidia-smi omits MiB with `nounits`, and old versions write MB for
// MiB.
std::optional<Figure> FigureOf(std::string_view text) {
  text = Trimmed(text);
  uint64_t figure = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), figure);
  if (error != std::errc())
    return std::nullopt;
  const std::string_view unit = Trimmed(text.substr(static_cast<size_t>(end - text.data())));
  const int shift = unit.empty() || unit == "MiB" || unit == "MB" ? 20
                    : unit == "KiB"                               ? 10
                    : unit == "GiB"                               ? 30
                    : unit == "B"                                 ? 0
                                                                  : -1;
  if (shift < 0 || figure > kMostBytes >> shift)
    return std::nullopt;
  return Figure{figure << shift, !unit.empty()};
}

bool HasUnit(std::string_view text) {
  const auto figure = FigureOf(text);
  return figure && figure->has_unit;
}

// "[N/A]", "[Not Supported]", "[Insufficient Permissions]", pmon's "-": the value is unavailable.
bool IsNoAnswer(std::string_view text) {
  text = Trimmed(text);
  return text.starts_with("[") || text == "N/A" || text == "-";
}

bool IsProduct(std::string_view cell) {
  constexpr std::string_view kBrands[] = {"NVIDIA ", "Tesla ", "GeForce ", "Quadro ", "GRID "};
  return std::any_of(std::begin(kBrands), std::end(kBrands),
                     [&](std::string_view brand) { return cell.starts_with(brand); });
}

// "6 %", "28.27 W", "50": a figure other than memory.
bool IsMeasure(std::string_view cell) {
  return IsNoAnswer(cell) ||
         (!cell.empty() && cell.find_first_not_of("0123456789. %WC") == std::string_view::npos);
}

// Guesses the columns of a CSV line without a header. One or two sizes with units are memory.used
// and memory.total. Without units, a time stamp is first, then "index, used, total" or the last of
// these. Empty for any other line.
std::vector<Column> GuessColumns(std::string_view line) {
  const std::vector<std::string> cells = SplitCsv(line);
  std::vector<Column> columns(cells.size(), Column::kOther);
  std::vector<size_t> sizes, numbers;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string_view cell = Trimmed(cells[i]);
    if (i == 0 && cell.find(':') != std::string_view::npos && ParseWallTime(cell))
      columns[i] = Column::kTime;
    else if (HasUnit(cell))
      sizes.push_back(i);
    else if (util::WholeNumber<uint32_t>(cell))
      numbers.push_back(i);
    else if (cell.starts_with("GPU-"))
      columns[i] = Column::kUuid;
    else if (IsProduct(cell))
      columns[i] = Column::kName;
    else if (!IsMeasure(cell))
      return {};
  }
  if (sizes.empty() && columns[0] == Column::kTime && numbers.size() + 1 == cells.size()) {
    const size_t indices = numbers.size() == 3 ? 1 : 0;
    sizes.assign(numbers.begin() + static_cast<ptrdiff_t>(indices), numbers.end());
    numbers.resize(indices);
  }
  if (sizes.empty() || sizes.size() > 2)
    return {};
  if (sizes.size() == 2 && FigureOf(cells[sizes[0]])->bytes > FigureOf(cells[sizes[1]])->bytes)
    std::swap(sizes[0], sizes[1]);
  if (numbers.size() == 1 && numbers[0] < std::min(sizes.front(), sizes.back()))
    columns[numbers[0]] = Column::kIndex;
  columns[sizes[0]] = Column::kUsed;
  if (sizes.size() == 2)
    columns[sizes[1]] = Column::kTotal;
  return columns;
}

bool IsTableHead(std::string_view line) {
  return Trimmed(line).starts_with("| NVIDIA-SMI ");
}

class Reader {
 public:
  Reader(const Options& options, Builder* builder) : log_(options, builder), builder_(*builder) {}

  // `is_ended`: the line has a line end; the last line of a killed monitor may have none.
  void Add(std::string_view line, uint64_t number, bool is_ended);
  bool HasRows() const { return form_ != Form::kUnknown; }
  bool GivesUp() const { return !HasRows() && preamble_lines_ > kMostPreambleLines; }
  uint64_t first_line() const { return first_line_; }
  void Finish();

 private:
  enum class Form : uint8_t { kUnknown, kCsv, kMonitor, kTable };

  bool FindForm(std::string_view line);
  void AddCells(const std::vector<std::string>& cells, uint64_t number, bool is_ended);
  void AddTableLine(std::string_view line, uint64_t number);
  // The reason why the cells are not a reading, or "".
  std::string Parse(const std::vector<std::string>& cells, bool is_ended, Reading* reading);
  bool AddCell(Column column, std::string_view cell, Reading* reading);
  void Skip(uint64_t line, std::string_view why) { builder_.Skip(kLostRows, line, why); }
  void Take(Reading reading);

  ReadingLog log_;
  Builder& builder_;
  Form form_ = Form::kUnknown;
  std::vector<Column> columns_;
  bool is_guessed_ = false;
  std::optional<bool> has_units_;  // of the figures since the last header
  bool is_unanswered_ = false;     // of the current row
  uint64_t unanswered_ = 0;
  uint64_t preamble_lines_ = 0, first_line_ = 1;
  // State of the monitor's columns and of the table.
  std::optional<int64_t> date_ns_, time_of_day_ns_, table_ns_;
  Reading table_row_;
};

bool Reader::FindForm(std::string_view line) {
  if (std::vector<Column> header = HeaderOf(line); !header.empty()) {
    form_ = Form::kCsv;
    columns_ = std::move(header);
    is_guessed_ = false;
  } else if (header = MonitorHeaderOf(line); !header.empty()) {
    form_ = Form::kMonitor;
    columns_ = std::move(header);
  } else if (IsTableHead(line)) {
    form_ = Form::kTable;
  } else {
    return false;
  }
  has_units_.reset();
  // Each of several concatenated logs has a header, and so has each query of a loop.
  log_.EndBlock();
  return true;
}

void Reader::Add(std::string_view line, uint64_t number, bool is_ended) {
  if (Trimmed(line).empty() || FindForm(line))
    return;
  if (form_ == Form::kUnknown) {
    if (preamble_lines_ == 0) {
      columns_ = GuessColumns(line);
      first_line_ = number;
    }
    // A table's time stamp precedes its head.
    if (const auto time = ParseWallTime(line))
      table_ns_ = time->ns;
    is_guessed_ = !columns_.empty();
    form_ = is_guessed_ ? Form::kCsv : form_;
    preamble_lines_ += is_guessed_ ? 0 : 1;
  }
  if (form_ == Form::kCsv)
    AddCells(SplitCsv(line), number, is_ended);
  else if (form_ == Form::kMonitor && !Trimmed(line).starts_with("#"))
    AddCells(SplitBlanks(line), number, is_ended);
  else if (form_ == Form::kTable)
    AddTableLine(line, number);
}

// False if the cell has another form.
bool Reader::AddCell(Column column, std::string_view cell, Reading* reading) {
  switch (column) {
    case Column::kTime: {
      const auto time = ParseWallTime(cell);
      if (time) {
        reading->time_ns = time->ns;
        reading->has_fraction = time->has_fraction;
      }
      return time.has_value();
    }
    case Column::kDate:  // "20241101"
      date_ns_.reset();
      if (cell.size() == 8) {
        const std::string iso =
            fmt::format("{}-{}-{} 00:00:00", cell.substr(0, 4), cell.substr(4, 2), cell.substr(6));
        if (const auto time = ParseWallTime(iso))
          date_ns_ = time->ns;
      }
      return date_ns_.has_value();
    case Column::kTimeOfDay:
      time_of_day_ns_ = ParseTimeOfDay(cell);
      return time_of_day_ns_.has_value();
    case Column::kIndex:
      reading->index = util::WholeNumber<int32_t>(cell);
      return reading->index && *reading->index >= 0;
    case Column::kUuid:
      reading->uuid = cell;
      [[fallthrough]];
    case Column::kBus:
      if (reading->device.empty())
        reading->device = cell;
      return true;
    case Column::kName:
      (Has(columns_, Column::kPid) ? reading->process : reading->name) = cell;
      return true;
    case Column::kProcess:
      reading->process = cell;
      return true;
    case Column::kPid:
      is_unanswered_ = is_unanswered_ || IsNoAnswer(cell);
      reading->pid = util::WholeNumber<uint32_t>(cell);
      return reading->pid || is_unanswered_;
    case Column::kTotal:
      reading->total_bytes = FigureOf(cell).value_or(Figure()).bytes;
      return true;
    case Column::kUsed: {
      const auto figure = FigureOf(cell);
      if (!figure) {
        is_unanswered_ = is_unanswered_ || IsNoAnswer(cell);
        return is_unanswered_;
      }
      reading->used_bytes = figure->bytes;
      return figure->has_unit == has_units_.value_or(figure->has_unit);
    }
    case Column::kOther:
      return true;
  }
  return true;
}

std::string Reader::Parse(const std::vector<std::string>& cells, bool is_ended, Reading* reading) {
  is_unanswered_ = false;
  if (form_ == Form::kMonitor ? cells.size() < columns_.size() : cells.size() != columns_.size())
    return fmt::format("{} cells where {} are expected", cells.size(), columns_.size());
  for (size_t i = 0; i < columns_.size(); ++i) {
    const std::string_view cell = Trimmed(cells[i]);
    if (!AddCell(columns_[i], cell, reading))
      return columns_[i] == Column::kUsed && FigureOf(cell)
                 ? fmt::format("'{}' has no unit, unlike the rows before: it is cut off", cell)
             : columns_[i] == Column::kTime ? fmt::format("'{}' is not a time", cell)
                                            : fmt::format("'{}' is not a number", cell);
  }
  // A complete row ends with a line end or a unit.
  if (!is_ended && columns_.back() == Column::kUsed && !is_unanswered_ && !HasUnit(cells.back()))
    return "the last line has no end: its figure may be cut off";
  return "";
}

void Reader::AddCells(const std::vector<std::string>& cells, uint64_t number, bool is_ended) {
  Reading reading;
  std::string why = Parse(cells, is_ended, &reading);
  // Loops in scripts add columns without a header. The row is accepted if it is valid without one
  // of its cells and units show which cell is a size.
  for (size_t i = 0; !why.empty() && cells.size() == columns_.size() + 1 && i < cells.size(); ++i) {
    std::vector<std::string> fewer = cells;
    fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(i));
    const auto used = std::find(columns_.begin(), columns_.end(), Column::kUsed) - columns_.begin();
    Reading other;
    if (HasUnit(fewer[static_cast<size_t>(used)]) && Parse(fewer, is_ended, &other).empty()) {
      reading = other;
      why.clear();
    }
  }
  if (!why.empty()) {
    Skip(number, why);
    return;
  }
  if (is_unanswered_) {
    ++unanswered_;
    return;
  }
  const auto used = std::find(columns_.begin(), columns_.end(), Column::kUsed) - columns_.begin();
  if (form_ == Form::kCsv && !has_units_ && cells.size() == columns_.size())
    has_units_ = HasUnit(cells[static_cast<size_t>(used)]);
  if (date_ns_ && time_of_day_ns_)
    reading.time_ns = *date_ns_ + *time_of_day_ns_;
  Take(std::move(reading));
}

void Reader::Take(Reading reading) {
  if (reading.index)
    reading.device = fmt::format("#{}", *reading.index);
  log_.Add(std::move(reading));
}

// A GPU has two lines: number and name, then memory.
void Reader::AddTableLine(std::string_view line, uint64_t number) {
  line = Trimmed(line);
  if (const auto time = ParseWallTime(line)) {
    table_ns_ = time->ns;
    return;
  }
  if (!line.starts_with("|") || std::count(line.begin(), line.end(), '|') < 4)
    return;
  const size_t slash = line.find("MiB /");
  if (slash != std::string_view::npos) {
    if (!table_row_.index)  // a part of a GPU (MIG)
      return;
    const std::string_view before = line.substr(0, slash);
    const std::string_view after = line.substr(slash + 5);
    const auto used = FigureOf(before.substr(before.rfind('|') + 1));
    const auto total = FigureOf(after.substr(0, after.find('|')));
    if (used && total) {
      table_row_.used_bytes = used->bytes;
      table_row_.total_bytes = total->bytes;
      table_row_.time_ns = table_ns_;
      Take(table_row_);
    } else {
      Skip(number, "no figure of memory");
    }
    table_row_ = {};
    return;
  }
  std::string_view cell = Trimmed(line.substr(1, line.find('|', 1) - 1));
  const size_t end = std::min(cell.find(' '), cell.size());
  const auto index = util::WholeNumber<int32_t>(cell.substr(0, end));
  if (!index || *index < 0)
    return;
  cell = Trimmed(cell.substr(end));
  for (const std::string_view persistence : {"Off", "On", "N/A"}) {
    if (cell.ends_with(persistence))
      cell = Trimmed(cell.substr(0, cell.size() - persistence.size()));
  }
  table_row_ = {};
  table_row_.index = *index;
  table_row_.name = cell;
}

void Reader::Finish() {
  if (is_guessed_ && columns_.size() > 1)
    builder_.Note("columns", "by the form of their cells: the log has no header");
  if (preamble_lines_ > 0)
    builder_.Note("lines before the first row", std::to_string(preamble_lines_));
  if (unanswered_ > 0)
    builder_.WhyEmpty(kNoFigureWhy);
  builder_.Lose(kNoFigures, unanswered_);
  log_.Finish();
}

}  // namespace

bool IsNvidiaSmi(const Input& input) {
  std::string_view rest = input.text_head();
  bool is_first = true;
  for (uint64_t lines = 0; !rest.empty() && lines <= kMostPreambleLines; ++lines) {
    const std::string_view line = rest.substr(0, rest.find_first_of("\r\n"));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (!HeaderOf(line).empty() || !MonitorHeaderOf(line).empty() || IsTableHead(line) ||
        (is_first && !GuessColumns(line).empty()))
      return true;
    is_first = is_first && Trimmed(line).empty();
  }
  return false;
}

util::Status ReadNvidiaSmi(const Input& input, const Options& options, Builder* builder) {
  LineReader lines(input.Text());
  Reader reader(options, builder);
  for (std::string_view line; lines.Next(&line) && !builder->IsOver() && !reader.GivesUp();)
    reader.Add(line, lines.number(), lines.is_ended());
  VRAMSCOPE_RETURN_IF_ERROR(lines.status());
  if (!reader.HasRows()) {
    return util::Status::Error(fmt::format(
        "{}, line {}: has neither a header with memory.used or used_memory nor a number in MiB: "
        "write the log with nvidia-smi --format=csv",
        input.path(), reader.first_line()));
  }
  reader.Finish();
  return {};
}

}  // namespace vramscope::imports
