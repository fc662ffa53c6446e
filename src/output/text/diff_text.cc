// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "output/answers.h"
#include "output/text/text_table.h"
#include "query/diff/diff.h"
#include "query/dimensions/fold_names.h"
#include "util/size_text.h"

namespace vramscope::output {
namespace {

constexpr size_t kChangeColumns = 12;
constexpr size_t kPercentColumns = 10;
constexpr size_t kSentenceIndent = 2;  // of what has no room in its first line
constexpr size_t kCausesShown = 3;
constexpr double kFactor = 100;      // instead of percents from this one on
constexpr double kMostFactor = 1e5;  // none is shown from this one on: both figures say more

// Rows that repeat from layer to layer, as one.
struct FoldedRow {
  query::DiffRow row;
  std::set<uint32_t> numbers;  // of the layers, where the module has some
  size_t rows = 0;
};

void AddCallers(const std::vector<query::DiffCaller>& callers,
                std::vector<query::DiffCaller>* sums) {
  for (const query::DiffCaller& caller : callers) {
    auto sum = std::find_if(sums->begin(), sums->end(), [&](const query::DiffCaller& known) {
      return known.line == caller.line;
    });
    if (sum == sums->end())
      sum = sums->insert(sum, {caller.line, 0, 0});
    sum->a_bytes += caller.a_bytes;
    sum->b_bytes += caller.b_bytes;
  }
}

std::vector<FoldedRow> Fold(const std::vector<query::DiffRow>& rows) {
  std::map<std::vector<std::string>, FoldedRow> folded;
  for (const query::DiffRow& row : rows) {
    std::vector<std::string> path = row.path;
    // A model's own number, "Net#2", is none of a layer.
    const bool of_model = row.path[3].find('#') != std::string::npos;
    const query::NumberedName module =
        of_model ? query::NumberedName{row.path[3], {}} : query::SplitNumbers(row.path[3]);
    path[3] = module.shape;
    path[4] = query::SplitNumbers(row.path[4]).shape;
    FoldedRow& sum = folded[path];
    sum.row.path = path;
    sum.row.a_bytes += row.a_bytes;
    sum.row.b_bytes += row.b_bytes;
    sum.row.a_count += row.a_count;
    sum.row.b_count += row.b_count;
    AddCallers(row.callers, &sum.row.callers);
    if (!module.numbers.empty())
      sum.numbers.insert(module.numbers[0]);
    ++sum.rows;
  }
  std::vector<FoldedRow> out;
  for (auto& [path, row] : folded)
    out.push_back(std::move(row));
  std::stable_sort(out.begin(), out.end(), [](const FoldedRow& x, const FoldedRow& y) {
    return std::abs(x.row.delta_bytes()) > std::abs(y.row.delta_bytes());
  });
  return out;
}

class DiffText : public TextLines {
 public:
  DiffText(const query::Diff& diff, const DiffTextOptions& options)
      : TextLines(options.style), diff_(diff), options_(options) {}

  std::string Format() {
    AddCauses();
    AddFigures();
    AddIterations();
    AddRanks();
    AddRows();
    AddSources();
    return Take();
  }

 private:
  void AddSentence(const std::string& clean) { Add(Wrapped(clean, 0, kSentenceIndent, style())); }

  void AddCauses();
  void AddFigures();
  void AddIterations();
  void AddRows();
  void AddRanks();
  void AddSources();
  // Both sides' bytes, the change, and what it is of.
  TextCells Figures(uint64_t a, uint64_t b) const {
    const int64_t delta = static_cast<int64_t>(b) - static_cast<int64_t>(a);
    return {{util::FormatBytes(a)}, {util::FormatBytes(b)}, {util::FormatSignedBytes(delta)}};
  }
  std::vector<TextColumn> FigureColumns() const {
    return {{.title = "A", .width = kBytesColumns},
            {.title = "B", .width = kBytesColumns},
            {.title = "change", .width = kChangeColumns}};
  }
  // Begins a table of names and their figures.
  std::unique_ptr<TextTable> Begin(const char* title);
  void AddLine(const std::string& name, uint64_t a, uint64_t b, TextTable* table) const;

  const query::Diff& diff_;
  const DiffTextOptions& options_;
};

void DiffText::AddCauses() {
  if (diff_.same) {
    Add(Paint("no difference", Ink::kGood, style()) +
        fmt::format(": the peak is {} in A and {} in B", util::FormatBytes(diff_.a_bytes),
                    util::FormatBytes(diff_.b_bytes)));
  }
  const size_t shown =
      options_.top == 0 ? diff_.causes.size() : std::min(diff_.causes.size(), kCausesShown);
  // However long: nothing of a cause is cut.
  for (size_t i = 0; i < shown; ++i)
    AddSentence(Clean(diff_.causes[i]));
  if (shown < diff_.causes.size()) {
    Add(Paint(fmt::format("({} smaller: --top 0 shows them)", diff_.causes.size() - shown),
              Ink::kDim, style()));
  }
  for (const std::string& note : diff_.notes)
    Add(Paint("note: ", Ink::kWarning, style()) +
        Wrapped(Clean(note), std::strlen("note: "), kSentenceIndent, style()));
  Add("");
}

std::unique_ptr<TextTable> DiffText::Begin(const char* title) {
  constexpr size_t kFigures = 2 * kBytesColumns + kChangeColumns + kPercentColumns;
  std::vector<TextColumn> all = FigureColumns();
  all.insert(all.begin(), {.title = title,
                           .width = std::clamp<size_t>(RoomBeside(kFigures), 20, 44),
                           .fit = Fit::kCutEnd,
                           .title_ink = Ink::kBold});
  all.push_back({.width = kPercentColumns});
  auto table = std::make_unique<TextTable>(this, std::move(all));
  table->AddTitles();
  return table;
}

void DiffText::AddLine(const std::string& name, uint64_t a, uint64_t b, TextTable* table) const {
  std::string percent;
  if (a != 0 && a != b) {
    const auto from = static_cast<double>(a);
    const auto to = static_cast<double>(b);
    if (to < kFactor * from)
      percent = fmt::format("{:+.1f} %", 100 * (to - from) / from);
    else if (to < kMostFactor * from)
      percent = fmt::format("x {:.0f}", to / from);
  }
  TextCells cells = Figures(a, b);
  cells.insert(cells.begin(), {"  " + Clean(name)});
  cells.push_back({std::move(percent)});
  table->AddRow(std::move(cells));
}

void DiffText::AddFigures() {
  auto table = Begin("Peak");
  for (const query::DiffDevice& device : diff_.devices)
    AddLine(device.name + (device.compared ? "" : " (not compared)"), device.a_bytes,
            device.b_bytes, table.get());
  uint64_t start_a = 0;
  uint64_t start_b = 0;
  for (const query::DiffRow& row : diff_.start) {
    start_a += row.a_bytes;
    start_b += row.b_bytes;
  }
  if (start_a != 0 || start_b != 0)
    AddLine("live at the first event", start_a, start_b, table.get());
  table.reset();
  table = Begin("At the peak, by category");
  for (const query::DiffRow& row : diff_.categories)
    AddLine(row.path[0], row.a_bytes, row.b_bytes, table.get());
}

void DiffText::AddIterations() {
  if (diff_.iterations.empty())
    return;
  const auto table = Begin("Iterations");
  for (const query::DiffIteration& iteration : diff_.iterations) {
    AddLine(fmt::format("{}: peak", iteration.number), iteration.a_peak_bytes,
            iteration.b_peak_bytes, table.get());
    AddLine(fmt::format("{}: end", iteration.number), iteration.a_end_bytes, iteration.b_end_bytes,
            table.get());
  }
}

void DiffText::AddRows() {
  std::vector<FoldedRow> rows = Fold(diff_.rows);
  std::erase_if(rows, [&](const FoldedRow& row) {
    return static_cast<uint64_t>(std::abs(row.row.delta_bytes())) <= diff_.threshold_bytes;
  });
  for (const query::DiffMove& move : diff_.moves) {
    AddSentence(fmt::format("{} moved from {} to {}: {}", util::FormatBytes(move.bytes), move.from,
                            move.path[1], Clean(move.path[3] + " " + move.path[5])));
  }
  if (rows.empty()) {
    Add("");
    return;
  }
  Add("");
  const size_t shown = options_.top == 0 ? rows.size() : std::min(rows.size(), options_.top);
  const bool several_devices = std::any_of(rows.begin(), rows.end(), [&](const FoldedRow& row) {
    return row.row.path[0] != rows[0].row.path[0];
  });
  std::vector<TextColumn> all = FigureColumns();
  all.push_back({.title = "Largest changes at the peak",
                 .fit = Fit::kCutEnd,
                 .gap = 2,
                 .title_ink = Ink::kBold});
  auto table = std::make_unique<TextTable>(this, std::move(all));
  table->AddTitles();
  for (size_t i = 0; i < shown; ++i) {
    const query::DiffRow& row = rows[i].row;
    std::string what = row.a_bytes == 0 ? "only in B: " : row.b_bytes == 0 ? "only in A: " : "";
    what += row.path[1];
    if (several_devices)
      what += " on " + row.path[0];
    std::string module = row.path[3];
    if (const size_t mark = module.find('#'); mark != std::string::npos && !rows[i].numbers.empty())
      module.replace(mark, 1, query::RangeText(rows[i].numbers));
    if (!module.empty())
      what += " of " + query::LayerWords(module);
    if (rows[i].numbers.size() > 1)
      what += fmt::format(" x{}", rows[i].numbers.size());
    TextCells cells = Figures(row.a_bytes, row.b_bytes);
    cells.push_back({Clean(what)});
    table->AddRow(std::move(cells));
    std::string below;
    for (const std::string& text : {row.path[4], row.path[5]}) {
      if (!text.empty())
        below += (below.empty() ? "" : ", ") + text;
    }
    below += query::CallerText(row.callers);
    if (!below.empty())
      table->AddBelow(Clean(below));
  }
  table.reset();
  AddMore(rows.size() - shown);
  Add("");
}

void DiffText::AddRanks() {
  for (const auto& [side, ranks] :
       {std::pair{"A", &diff_.a_ranks}, std::pair{"B", &diff_.b_ranks}}) {
    if (ranks->empty())
      continue;
    std::string line = fmt::format("Ranks of {}:", side);
    for (const query::DiffRank& rank : *ranks) {
      line += fmt::format(" {} {}{}", Clean(rank.name), util::FormatBytes(rank.peak_bytes),
                          rank.outlier    ? " (outlier)"
                          : rank.compared ? " (median)"
                                          : "");
      line += &rank == &ranks->back() ? "" : ",";
    }
    AddSentence(line);
  }
}

void DiffText::AddSources() {
  for (const auto& [name, source] : {std::pair{"A", &diff_.a}, std::pair{"B", &diff_.b}})
    AddSentence(fmt::format("{}: {}  {}", name, Clean(source->file), Clean(source->command)));
  std::string limits = util::FormatBytes(diff_.threshold_bytes);
  if (diff_.driver_threshold_bytes != diff_.threshold_bytes) {
    limits += fmt::format(", of the driver's memory and of free bytes up to {},",
                          util::FormatBytes(diff_.driver_threshold_bytes));
  }
  const std::string noise = fmt::format("Differences of up to {} are treated as noise.", limits);
  Add(Wrapped(noise, 0, kSentenceIndent, style()), Ink::kDim);
}

}  // namespace

std::string FormatDiff(const query::Diff& diff, const DiffTextOptions& options) {
  return DiffText(diff, options).Format();
}

}  // namespace vramscope::output
