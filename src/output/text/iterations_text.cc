// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "output/answers.h"
#include "output/names.h"
#include "output/text/text_parts.h"
#include "query/report/report_parts.h"
#include "query/results.h"
#include "util/size_text.h"
#include "util/text.h"

namespace vramscope::output {
namespace {

using format::Category;
using Rows = std::vector<const query::Iteration*>;
using Key = std::pair<tables::ProcessId, tables::DeviceId>;

constexpr size_t kNumberColumns = 10;
constexpr size_t kTimeColumns = 9;

// A unit in which no figure of the table takes more than six characters, digits after the point
// included.
struct FigureUnit {
  uint64_t bytes;
  const char* name;
  int digits;
};
FigureUnit UnitFor(uint64_t largest_bytes) {
  const uint64_t mib = 1ull << 20;
  if (largest_bytes < 1000)
    return {1, "B", 0};
  if (largest_bytes < 1000ull << 10)
    return {1ull << 10, "KiB", 1};
  if (largest_bytes < 10 * mib)
    return {mib, "MiB", 3};
  if (largest_bytes < 1000 * mib)
    return {mib, "MiB", 1};
  if (largest_bytes < 100ull << 30)
    return {1ull << 30, "GiB", 3};
  return {1ull << 30, "GiB", 1};
}
std::string Figure(uint64_t bytes, const FigureUnit& unit) {
  return fmt::format("{:.{}f}", static_cast<double>(bytes) / static_cast<double>(unit.bytes),
                     unit.digits);
}

// A head is one word, or two above each other.
struct FigureColumn {
  const char* above;
  const char* name;
  uint64_t (*bytes)(const query::Iteration&);
  int rank;  // what has the highest goes first where the screen is narrow; 0 stays

  // A figure takes six characters.
  size_t columns() const {
    return std::max({std::string_view(above).size(), std::string_view(name).size(), size_t{6}}) + 1;
  }
  std::string words() const { return *above == 0 ? name : fmt::format("{} {}", above, name); }
};
template <Category kCategory>
uint64_t PeakOf(const query::Iteration& row) {
  return query::BytesOf(row.category_peak, kCategory);
}
constexpr std::array<FigureColumn, 13> kFigures = {{
    {"", "peak", [](const query::Iteration& row) { return row.peak_bytes; }, 0},
    {"", "allocated", [](const query::Iteration& row) { return row.peak_allocated; }, 0},
    {"", "reserved", [](const query::Iteration& row) { return row.peak_reserved; }, 0},
    {"", "end", [](const query::Iteration& row) { return row.end_allocated; }, 0},
    {"", "activation", PeakOf<Category::kActivation>, 0},
    {"", "gradient", PeakOf<Category::kGradient>, 1},
    {"backward", "temporary",
     [](const query::Iteration& row) { return row.backward_temporary_peak; }, 2},
    {"", "parameter", PeakOf<Category::kParameter>, 6},
    {"optimizer", "state", PeakOf<Category::kOptimizerState>, 3},
    {"", "workspace", PeakOf<Category::kWorkspace>, 4},
    {"", "cached", PeakOf<Category::kCached>, 7},
    {"", "fragmentation", PeakOf<Category::kFragmentation>, 8},
    {"", "driver", PeakOf<Category::kDriver>, 5},
}};

// The layer that a parameter belongs to: its name less the last part.
std::string LayerOf(const query::ParameterBytes& parameter) {
  if (!parameter.module.empty())
    return parameter.module;
  // Tied ones have several names: "wte.weight = lm_head.weight".
  const std::string first = parameter.name.substr(0, parameter.name.find(" = "));
  const size_t dot = first.rfind('.');
  return dot == std::string::npos ? first : first.substr(0, dot);
}

// Without a caching allocator nothing is reserved, and all is allocated.
bool SaysNothing(const FigureColumn& column, const Rows& rows) {
  const std::string_view name = column.name;
  return std::all_of(rows.begin(), rows.end(), [&](const query::Iteration* row) {
    if (name == "allocated")
      return row->peak_allocated == row->peak_bytes;
    return column.bytes(*row) == 0 && (column.rank > 0 || name == "reserved");
  });
}

class IterationsText : public TextLines {
 public:
  IterationsText(const query::Iterations& iterations,
                 const tables::Recording& recording,
                 const IterationsTextOptions& options)
      : TextLines(options.style),
        iterations_(iterations),
        recording_(recording),
        options_(options) {}

  std::string Format() {
    std::map<Key, Rows> groups;
    std::map<Key, std::vector<const query::ParameterBytes*>> parameters;
    for (const query::Iteration& iteration : iterations_.iterations)
      groups[{iteration.process, iteration.device}].push_back(&iteration);
    for (const query::ParameterBytes& parameter : iterations_.parameters)
      parameters[{parameter.process, parameter.device}].push_back(&parameter);
    for (const auto& [key, rows] : groups) {
      if (size() > 0)
        Add("");
      AddGroup(rows, groups.size() > 1);
      if (const auto found = parameters.find(key); found != parameters.end())
        AddParameters(found->second);
    }
    AddMeaning(groups);
    return Take();
  }

 private:
  // Of equal peaks the report's headline names one: it has the star here.
  bool IsPeakOfDevice(const query::Iteration& row) const {
    const std::vector<tables::PeakRow>& peaks = recording_.tables().peaks;
    return std::any_of(peaks.begin(), peaks.end(), [&](const tables::PeakRow& peak) {
      return peak.device == row.device && peak.time_ns == row.peak_ns;
    });
  }
  // Null if the device's peak is within one of them.
  const tables::PeakRow* PeakOutside(const Rows& rows) const {
    for (const tables::PeakRow& peak : recording_.tables().peaks) {
      const bool within = std::any_of(rows.begin(), rows.end(), [&](const auto* row) {
        return row->begin_ns < peak.time_ns && peak.time_ns <= row->end_ns;
      });
      if (peak.device == rows[0]->device && !within)
        return &peak;
    }
    return nullptr;
  }
  std::string Seconds(int64_t time_ns) const {
    return ExactSeconds(time_ns - recording_.tables().session.begin_ns);
  }
  // What the figures are of, once for all tables.
  void AddMeaning(const std::map<Key, Rows>& groups) {
    const bool gpu = std::any_of(groups.begin(), groups.end(), [&](const auto& group) {
      return recording_.tables().devices[group.first.second.value].index >= 0;
    });
    Add("");
    AddCut("Each column shows its own maximum; end: allocated at the iteration's end.", Ink::kDim);
    if (!gpu)
      return;
    AddCut("All columns count one process; `report` also has the device's other memory.",
           Ink::kDim);
    AddCut("Times are those of the host's calls: kernels run later.", Ink::kDim);
  }
  void AddGroup(const Rows& rows, bool several);
  // What has bytes in any row and fits on the screen; `left_out` has those that do not fit.
  std::vector<const FigureColumn*> ChooseColumns(const Rows& rows, std::string* left_out) const;
  void AddRow(const query::Iteration& row,
              const std::vector<const FigureColumn*>& figures,
              bool worst,
              bool edge,
              const FigureUnit& unit,
              TextTable* table) const;
  void AddParameters(const std::vector<const query::ParameterBytes*>& parameters);

  const query::Iterations& iterations_;
  const tables::Recording& recording_;
  const IterationsTextOptions& options_;
};

std::vector<const FigureColumn*> IterationsText::ChooseColumns(const Rows& rows,
                                                               std::string* left_out) const {
  std::vector<const FigureColumn*> chosen;
  size_t width = kNumberColumns + kTimeColumns;
  for (const FigureColumn& column : kFigures) {
    if (SaysNothing(column, rows))
      continue;
    chosen.push_back(&column);
    width += column.columns();
  }
  const auto by_rank = [](const auto* a, const auto* b) { return a->rank < b->rank; };
  while (width > columns()) {
    const auto last = std::max_element(chosen.begin(), chosen.end(), by_rank);
    if ((*last)->rank == 0)
      break;
    // What the reader misses most comes first.
    left_out->insert(0, (*last)->words() + (left_out->empty() ? "" : ", "));
    width -= (*last)->columns();
    chosen.erase(last);
  }
  return chosen;
}

void IterationsText::AddGroup(const Rows& rows, bool several) {
  std::string left_out_columns;
  const std::vector<const FigureColumn*> figures = ChooseColumns(rows, &left_out_columns);
  size_t worst = 0;
  uint64_t largest = 0;
  int64_t numbered = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i]->peak_bytes > rows[worst]->peak_bytes ||
        (rows[i]->peak_bytes == rows[worst]->peak_bytes && IsPeakOfDevice(*rows[i])))
      worst = i;
    for (const FigureColumn* column : figures)
      largest = std::max(largest, column->bytes(*rows[i]));
    numbered += rows[i]->number >= 0 ? 1 : 0;
  }
  const FigureUnit unit = UnitFor(largest);
  std::string title;
  if (several) {
    title = DeviceMark(recording_, rows[0]->device);
    if (PidOf(recording_, rows[0]->process) != 0)
      title += ", " + Printable(ProcessLabel(recording_, rows[0]->process), style().utf8);
    title += ": ";
  }
  title +=
      fmt::format("{} iteration{} ({}), by {}", util::FormatCount(static_cast<uint64_t>(numbered)),
                  numbered == 1 ? "" : "s", unit.name, iterations_.source);
  AddCut(title, Ink::kBold);
  // "12 ", "12*" for the worst.
  std::vector<TextColumn> all = {{.title = "iteration ", .width = kNumberColumns},
                                 {.title = "time", .width = kTimeColumns}};
  TextCells above(2);
  for (const FigureColumn* column : figures) {
    above.push_back({column->above});
    all.push_back({.title = column->name, .width = column->columns()});
  }
  std::optional<TextTable> table;
  table.emplace(this, std::move(all));
  if (std::any_of(above.begin(), above.end(), [](const auto& cell) { return !cell.text.empty(); }))
    table->AddRest(std::move(above));
  table->AddTitles();

  const size_t edge = options_.rows == 0 ? rows.size() : std::max<size_t>(options_.rows / 2, 1);
  size_t left_out = 0;
  const auto flush = [&] {
    if (left_out > 0) {
      const std::string more = fmt::format("({} more)", util::FormatCount(left_out));
      table->AddLine(std::string(kNumberColumns + 1, ' ') + Paint(more, Ink::kDim, style()));
    }
    left_out = 0;
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    // A line that says "(1 more)" takes the room of the row itself.
    const bool alone = rows.size() == 2 * edge + 1;
    if (i >= edge && i + edge < rows.size() && i != worst && !alone) {
      ++left_out;
      continue;
    }
    flush();
    AddRow(*rows[i], figures, i == worst && rows.size() > 1, i == 0 || i + 1 == rows.size(), unit,
           &*table);
  }
  table.reset();
  std::string legend;
  if (rows.size() > 1) {
    legend = fmt::format("* highest peak, at {} s", Seconds(rows[worst]->peak_ns));
    if (const tables::PeakRow* peak = PeakOutside(rows); peak != nullptr)
      legend += fmt::format("; the device's peak is at {} s", Seconds(peak->time_ns));
  }
  if (!left_out_columns.empty())
    legend +=
        fmt::format("{}hidden at this width: {}", legend.empty() ? "" : "; ", left_out_columns);
  if (!legend.empty()) {
    const std::string indent(kNumberColumns - 1, ' ');
    AddCut(indent + legend, Ink::kDim);
  }
}

void IterationsText::AddRow(const query::Iteration& row,
                            const std::vector<const FigureColumn*>& figures,
                            bool worst,
                            bool edge,
                            const FigureUnit& unit,
                            TextTable* table) const {
  // What came before the first has no number.
  TextCells cells = {{row.number < 0 ? "before" : std::to_string(row.number) + (worst ? '*' : ' ')},
                     {util::FormatDuration(row.end_ns - row.begin_ns)}};
  for (const FigureColumn* column : figures)
    cells.push_back({Figure(column->bytes(row), unit)});
  table->AddRow(std::move(cells), worst  ? std::optional(Ink::kWarning)
                                  : edge ? std::optional(Ink::kBold)
                                         : std::nullopt);
}

void IterationsText::AddParameters(const std::vector<const query::ParameterBytes*>& parameters) {
  const auto add_to = [](const query::ParameterBytes& of, query::ModuleEntry* sum) {
    sum->categories.resize(3);
    size_t part = 0;
    for (const auto& [name, bytes] : {std::pair{"parameter", of.parameter},
                                      {"gradient", of.gradient},
                                      {"optimizer", of.optimizer_state}}) {
      sum->categories[part].first = name;
      sum->categories[part++].second += bytes;
      sum->bytes += bytes;
    }
    ++sum->count;
  };
  std::vector<query::ModuleEntry> layers;
  std::map<std::string, size_t> index;
  query::ModuleEntry all;
  for (const query::ParameterBytes* parameter : parameters) {
    const std::string name = LayerOf(*parameter);
    const auto [found, added] = index.try_emplace(name, layers.size());
    if (added)
      layers.emplace_back().module = name;
    add_to(*parameter, &layers[found->second]);
    add_to(*parameter, &all);
  }
  std::stable_sort(layers.begin(), layers.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  const std::string of_all = fmt::format(
      "{} parameter{} of {} layer{}", util::FormatCount(all.count), all.count == 1 ? "" : "s",
      util::FormatCount(layers.size()), layers.size() == 1 ? "" : "s");
  layers = query::FoldModules(layers);

  Add("");
  constexpr size_t kColumns = 12;
  constexpr size_t kBeside = 4 * kColumns + 1;
  const Unit unit = TableUnit(all.bytes);
  const size_t most = RoomBeside(kBeside);
  std::vector<TextColumn> columns = {{.title = "Parameters, last complete iteration",
                                      .width = std::min(kPlainColumns - kBeside, most),
                                      .most = most,
                                      .fit = Fit::kCutEnd},
                                     {.title = unit.name, .width = kColumns + 1}};
  for (const auto& [category, bytes] : all.categories)
    columns.push_back({.title = category, .width = kColumns});
  TextTable table(this, std::move(columns));
  table.AddTitles();
  const auto cells = [&](const query::ModuleEntry& layer, const std::string& name) {
    // The end of a path says which layer it is.
    TextCells row = {{"  " + CutStart(name, most - std::min<size_t>(most, 2), style())},
                     {InUnit(layer.bytes, unit.bytes)}};
    for (const auto& [category, bytes] : layer.categories)
      row.push_back({InUnit(bytes, unit.bytes)});
    return row;
  };
  table.AddRest(cells(all, of_all), Ink::kBold);
  const size_t limit = options_.parameters == 0 ? layers.size() : options_.parameters;
  const size_t shown = layers.size() == limit + 1 ? layers.size() : std::min(layers.size(), limit);
  query::ModuleEntry rest{.categories = {{}, {}, {}}, .modules = 0};
  for (size_t i = 0; i < layers.size(); ++i) {
    if (i < shown) {
      table.AddRow(cells(layers[i], LayerName(layers[i], style().utf8)));
      continue;
    }
    rest.modules += layers[i].modules;
    rest.bytes += layers[i].bytes;
    for (size_t part = 0; part < rest.categories.size(); ++part)
      rest.categories[part].second += layers[i].categories[part].second;
  }
  if (shown < layers.size())
    table.AddRest(cells(rest, fmt::format("({} more)", util::FormatCount(rest.modules))));
}

}  // namespace

std::string FormatIterations(const query::Iterations& iterations,
                             const tables::Recording& recording,
                             const IterationsTextOptions& options) {
  return IterationsText(iterations, recording, options).Format();
}

}  // namespace vramscope::output
