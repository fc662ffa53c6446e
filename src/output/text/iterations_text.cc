// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "output/devices.h"
#include "output/iterations.h"
#include "query/by_category.h"
#include "query/report/fold_modules.h"
#include "util/size_text.h"
#include "util/utf8.h"

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

class IterationsText {
 public:
  IterationsText(const query::Iterations& iterations,
                 const tables::Recording& recording,
                 const IterationsTextOptions& options)
      : iterations_(iterations), recording_(recording), options_(options), style_(options.style) {}

  std::string Format() {
    std::map<Key, Rows> groups;
    std::map<Key, std::vector<const query::ParameterBytes*>> parameters;
    for (const query::Iteration& iteration : iterations_.iterations)
      groups[{iteration.process, iteration.device}].push_back(&iteration);
    for (const query::ParameterBytes& parameter : iterations_.parameters)
      parameters[{parameter.process, parameter.device}].push_back(&parameter);
    for (const auto& [key, rows] : groups) {
      if (!out_.empty())
        Add("");
      AddGroup(rows, groups.size() > 1);
      if (const auto found = parameters.find(key); found != parameters.end())
        AddParameters(found->second);
    }
    AddMeaning(groups);
    return out_;
  }

 private:
  size_t columns() const { return static_cast<size_t>(style_.columns); }
  // Of equal peaks the report's headline names one: it has the star here.
  bool IsPeakOfDevice(const query::Iteration& row) const {
    const std::vector<tables::PeakRow>& peaks = recording_.tables().peaks;
    return std::any_of(peaks.begin(), peaks.end(), [&](const tables::PeakRow& peak) {
      return peak.device == row.device && peak.time_ns == row.peak_ns;
    });
  }
  // Null where the device has its peak within one of them.
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
  void Add(const std::string& line) { AppendLine(line, &out_); }
  // What the figures are of, once for all tables.
  void AddMeaning(const std::map<Key, Rows>& groups) {
    const bool gpu = std::any_of(groups.begin(), groups.end(), [&](const auto& group) {
      return recording_.tables().devices[group.first.second.value].index >= 0;
    });
    Add("");
    const auto say = [&](const char* text) {
      Add(Paint(CutEnd(text, columns(), style_), Ink::kDim, style_));
    };
    say("Each column is its own highest within the iteration; end: allocated at its end.");
    if (!gpu)
      return;
    say("All are of the process; `report` adds what belongs to no process to its device.");
    say("Times are those of the host's calls: kernels run later.");
  }
  void AddGroup(const Rows& rows, bool several);
  // What has bytes in any row and fits on the screen; `left_out` has those that do not fit.
  std::vector<const FigureColumn*> ChooseColumns(const Rows& rows, std::string* left_out) const;
  void AddRow(const query::Iteration& row,
              const std::vector<const FigureColumn*>& figures,
              bool worst,
              bool edge,
              const FigureUnit& unit);
  void AddParameters(const std::vector<const query::ParameterBytes*>& parameters);

  const query::Iterations& iterations_;
  const tables::Recording& recording_;
  const IterationsTextOptions& options_;
  const Style& style_;
  std::string out_;
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
      title += ", " + Printable(ProcessLabel(recording_, rows[0]->process), style_.utf8);
    title += ": ";
  }
  title +=
      fmt::format("{} iteration{} ({}), by {}", util::FormatCount(static_cast<uint64_t>(numbered)),
                  numbered == 1 ? "" : "s", unit.name, iterations_.source);
  Add(Paint(CutEnd(title, columns(), style_), Ink::kBold, style_));
  std::string above = std::string(kNumberColumns + kTimeColumns, ' ');
  std::string head = PadLeft("iteration", kNumberColumns - 1) + PadLeft("time", kTimeColumns + 1);
  for (const FigureColumn* column : figures) {
    above += PadLeft(column->above, column->columns());
    head += PadLeft(column->name, column->columns());
  }
  if (above.find_first_not_of(' ') != std::string::npos)
    Add(Paint(above, Ink::kDim, style_));
  Add(Paint(head, Ink::kDim, style_));

  const size_t edge = options_.rows == 0 ? rows.size() : std::max<size_t>(options_.rows / 2, 1);
  size_t left_out = 0;
  const auto flush = [&] {
    if (left_out > 0) {
      Add(Paint(fmt::format("{}({} more)", std::string(kNumberColumns + 1, ' '),
                            util::FormatCount(left_out)),
                Ink::kDim, style_));
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
    AddRow(*rows[i], figures, i == worst && rows.size() > 1, i == 0 || i + 1 == rows.size(), unit);
  }
  std::string legend;
  if (rows.size() > 1) {
    legend = fmt::format("* the highest of these, at {} s", Seconds(rows[worst]->peak_ns));
    if (const tables::PeakRow* peak = PeakOutside(rows); peak != nullptr)
      legend += fmt::format("; the device's peak is at {} s", Seconds(peak->time_ns));
  }
  if (!left_out_columns.empty())
    legend += fmt::format("{}no room for {}", legend.empty() ? "" : "; ", left_out_columns);
  if (!legend.empty()) {
    const std::string indent(kNumberColumns - 1, ' ');
    Add(Paint(CutEnd(indent + legend, columns(), style_), Ink::kDim, style_));
  }
}

void IterationsText::AddRow(const query::Iteration& row,
                            const std::vector<const FigureColumn*>& figures,
                            bool worst,
                            bool edge,
                            const FigureUnit& unit) {
  // What came before the first has no number.
  std::string text = PadLeft(row.number < 0 ? "before" : std::to_string(row.number),
                             kNumberColumns - (row.number < 0 ? 0 : 1));
  if (row.number >= 0)
    text += worst ? '*' : ' ';
  text += PadLeft(util::FormatDuration(row.end_ns - row.begin_ns), kTimeColumns);
  for (const FigureColumn* column : figures)
    text += PadLeft(Figure(column->bytes(row), unit), column->columns());
  if (worst)
    text = Paint(text, Ink::kWarning, style_);
  else if (edge)
    text = Paint(text, Ink::kBold, style_);
  Add(text);
}

void IterationsText::AddParameters(const std::vector<const query::ParameterBytes*>& parameters) {
  struct Layer {
    std::string name;
    query::ParameterBytes bytes;
    uint64_t count = 0;
    uint64_t layers = 1;  // that are alike
    uint64_t total() const { return bytes.parameter + bytes.gradient + bytes.optimizer_state; }
  };
  std::vector<Layer> layers;
  std::map<std::string, size_t> index;
  Layer all{.name = "all"};
  for (const query::ParameterBytes* parameter : parameters) {
    const std::string name = LayerOf(*parameter);
    const auto [found, added] = index.try_emplace(name, layers.size());
    if (added)
      layers.push_back({.name = name});
    for (Layer* layer : {&layers[found->second], &all}) {
      layer->bytes.parameter += parameter->parameter;
      layer->bytes.gradient += parameter->gradient;
      layer->bytes.optimizer_state += parameter->optimizer_state;
      ++layer->count;
    }
  }
  Add("");
  std::stable_sort(layers.begin(), layers.end(),
                   [](const Layer& a, const Layer& b) { return a.total() > b.total(); });
  const size_t layer_count = layers.size();
  std::vector<query::ModuleEntry> entries;
  for (const Layer& layer : layers) {
    entries.push_back({.device = {},
                       .module = layer.name,
                       .type = {},
                       .bytes = layer.total(),
                       .count = layer.count,
                       .categories = {{"parameter", layer.bytes.parameter},
                                      {"gradient", layer.bytes.gradient},
                                      {"optimizer", layer.bytes.optimizer_state}}});
  }
  layers.clear();
  for (const query::ModuleEntry& entry : query::FoldModules(entries)) {
    Layer& layer = layers.emplace_back();
    layer.name =
        entry.modules > 1 ? fmt::format("{} x{}", entry.module, entry.modules) : entry.module;
    layer.bytes.parameter = entry.categories[0].second;
    layer.bytes.gradient = entry.categories[1].second;
    layer.bytes.optimizer_state = entry.categories[2].second;
    layer.count = entry.count;
    layer.layers = entry.modules;
  }
  constexpr size_t kColumns = 12;
  const Unit unit = TableUnit(all.total());
  size_t widest = kPlainColumns - 4 * kColumns - 2;
  for (const Layer& layer : layers)
    widest = std::max(widest, util::DisplayWidth(Printable(layer.name, style_.utf8)) + 1);
  const size_t names = std::min(columns() - std::min(columns(), 4 * kColumns + 2), widest);
  const auto line = [&](const Layer& layer) {
    std::string text =
        "  " + PadRight(CutStart(Printable(layer.name, style_.utf8), names - 1, style_), names);
    for (const uint64_t bytes :
         {layer.total(), layer.bytes.parameter, layer.bytes.gradient, layer.bytes.optimizer_state})
      text += PadLeft(InUnit(bytes, unit.bytes), kColumns);
    return text;
  };
  std::string head =
      PadRight("Parameters, last whole iteration", names + 2) + PadLeft(unit.name, kColumns);
  for (const char* name : {"parameter", "gradient", "optimizer"})
    head += PadLeft(name, kColumns);
  Add(Paint(head, Ink::kDim, style_));
  all.name = fmt::format("{} parameter{} of {} layer{}", util::FormatCount(all.count),
                         all.count == 1 ? "" : "s", util::FormatCount(layer_count),
                         layer_count == 1 ? "" : "s");
  Add(Paint(line(all), Ink::kBold, style_));
  const size_t limit = options_.parameters == 0 ? layers.size() : options_.parameters;
  const size_t shown = layers.size() == limit + 1 ? layers.size() : std::min(layers.size(), limit);
  Layer rest{.name = {}, .bytes = {}, .layers = 0};
  for (size_t i = 0; i < layers.size(); ++i) {
    if (i < shown) {
      Add(line(layers[i]));
      continue;
    }
    rest.layers += layers[i].layers;
    rest.bytes.parameter += layers[i].bytes.parameter;
    rest.bytes.gradient += layers[i].bytes.gradient;
    rest.bytes.optimizer_state += layers[i].bytes.optimizer_state;
  }
  if (shown < layers.size()) {
    rest.name = fmt::format("({} more)", util::FormatCount(rest.layers));
    Add(Paint(line(rest), Ink::kDim, style_));
  }
}

}  // namespace

std::string FormatIterations(const query::Iterations& iterations,
                             const tables::Recording& recording,
                             const IterationsTextOptions& options) {
  return IterationsText(iterations, recording, options).Format();
}

}  // namespace vramscope::output
