// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "output/answers.h"
#include "output/text/text_table.h"
#include "util/size_text.h"

namespace vramscope::output {
namespace {

constexpr size_t kNameColumns = 17;
constexpr size_t kFormColumns = 11;
constexpr size_t kSizeColumns = 10;
// As many recordings as have room beside each other; the smallest are left out.
constexpr size_t kMostSizes = 4;
// Smaller residuals of a category say nothing.
constexpr double kShownResidual = 0.005;

std::string SignedShare(uint64_t predicted, uint64_t measured) {
  if (measured == 0)
    return "";
  const double share = static_cast<double>(predicted) / static_cast<double>(measured) - 1;
  return std::abs(share) < 0.0005 ? "0.0 %" : fmt::format("{:+.1f} %", share * 100);
}

class PredictionText : public TextLines {
 public:
  PredictionText(const query::Prediction& prediction, const Style& style)
      : TextLines(style), prediction_(prediction) {
    const size_t sources = prediction.sources.size();
    first_ = sources - std::min(sources, kMostSizes);
  }

  std::string Format() {
    AddAnswer();
    Add("");
    AddTable();
    if (first_ > 0) {
      Add(fmt::format("({} without a column: --json has all)",
                      util::FormatCountOf(first_, "smaller recording")),
          Ink::kDim);
    }
    AddResiduals();
    for (const std::string& note : prediction_.notes) {
      if (&note == &prediction_.notes.front())
        Add("");
      AddWrapped(Clean(note), Ink::kDim);
    }
    return Take();
  }

 private:
  bool IsSingle() const { return prediction_.least_bytes.has_value(); }
  std::string SizeName(uint64_t size) const {
    return fmt::format("{} {}", Clean(prediction_.variable), util::FormatCount(size));
  }

  // ", of it activation 15.2 GiB (grows with batch)".
  std::string LargestThatGrows() const {
    for (const query::PredictCategory& row : prediction_.categories) {
      if (row.form != "constant") {
        return fmt::format(
            ", of it {} {} (grows with {}{})", row.category, util::FormatBytes(row.bytes),
            row.form == "quadratic" ? "the square of " : "", Clean(prediction_.variable));
      }
    }
    return "";
  }

  void AddAnswer() {
    const std::string size = SizeName(prediction_.size);
    std::string answer;
    if (IsSingle()) {
      answer = fmt::format("At {}: peak between {} and {}", size,
                           util::FormatBytes(*prediction_.least_bytes),
                           util::FormatBytes(prediction_.peak_bytes));
    } else {
      answer = fmt::format("At {}: peak {}{}{}", size, util::FormatBytes(prediction_.peak_bytes),
                           prediction_.phase == "none" ? "" : " in " + prediction_.phase,
                           LargestThatGrows());
    }
    Add(Wrapped(answer + CardText() + ".", 0, 0, style()), Ink::kBold);
  }

  // Of CPU tensors the figure is no promise: two digits.
  std::string LargestSize() const {
    uint64_t size = *prediction_.largest_size;
    if (prediction_.kind != tables::DeviceKind::kCpu)
      return util::FormatCount(size);
    uint64_t unit = 1;
    while (size / unit >= 100)
      unit *= 10;
    return "about " + util::FormatCount(size / unit * unit);
  }

  std::string CardText() const {
    if (!prediction_.card_bytes)
      return "";
    const uint64_t card = *prediction_.card_bytes;
    const std::string size = util::FormatBytes(card);
    const uint64_t peak = prediction_.peak_bytes;
    const uint64_t least = prediction_.least_bytes.value_or(peak);
    const bool cpu = prediction_.kind == tables::DeviceKind::kCpu;
    std::string text = cpu ? "; tensors alone " : "; ";
    if (peak <= card)
      text += fmt::format("fit{} in {} with {} to spare", cpu ? "" : "s", size,
                          util::FormatBytes(card - peak));
    else if (least <= card)
      text += "may fit in " + size;
    else
      text += fmt::format("{} not fit in {}: {}{} too much", cpu ? "do" : "does", size,
                          IsSingle() ? "at least " : "", util::FormatBytes(least - card));
    const std::string certain = IsSingle() ? " for certain" : "";
    if (!prediction_.largest_size)
      return text + "; any " + Clean(prediction_.variable) + " does";
    if (*prediction_.largest_size == 0)
      return text + "; no " + Clean(prediction_.variable) + " does" + certain;
    if (!prediction_.size_given)
      return text + "; it is the largest that does" + certain;
    return text + fmt::format("; the largest that does{} is {}", certain, LargestSize());
  }

  void AddTable() {
    uint64_t largest = prediction_.peak_bytes;
    for (const query::PredictSource& source : prediction_.sources)
      largest = std::max(largest, source.peak_bytes);
    const Unit unit = TableUnit(largest);
    std::vector<TextColumn> columns = {
        {.title = unit.name, .width = kNameColumns, .fit = Fit::kLeft}};
    for (size_t i = first_; i < prediction_.sources.size(); ++i) {
      columns.push_back(
          {.title = "at " + util::FormatCount(prediction_.sources[i].size), .width = kSizeColumns});
    }
    columns.push_back({.title = "form",
                       .width = IsSingle() ? kFormColumns + 8 : kFormColumns,
                       .fit = Fit::kLeft,
                       .gap = 2});
    columns.push_back({.title = "at " + util::FormatCount(prediction_.size),
                       .width = kSizeColumns,
                       .title_ink = Ink::kBold});
    TextTable table(this, std::move(columns));
    table.AddTitles();
    for (const query::PredictCategory& row : prediction_.categories) {
      TextCells cells = {{row.category}};
      for (size_t i = first_; i < row.measured_bytes.size(); ++i)
        cells.push_back({InUnit(row.measured_bytes[i], unit.bytes)});
      cells.push_back({row.form});
      cells.push_back({InUnit(row.bytes, unit.bytes)});
      table.AddRow(std::move(cells));
    }
    TextCells allocated = {{"allocated"}};
    for (size_t i = first_; i < prediction_.sources.size(); ++i)
      allocated.push_back({InUnit(prediction_.sources[i].peak_bytes, unit.bytes)});
    allocated.push_back({});
    allocated.push_back({InUnit(prediction_.allocated_bytes, unit.bytes)});
    table.AddRest(std::move(allocated), Ink::kBold);
    AddKept("cached", prediction_.cached_bytes, unit, &table);
    AddKept("driver", prediction_.driver_bytes, unit, &table);
    if (IsSingle())
      return;
    TextCells residual = {{"residual"}};
    TextCells left_out = {{"from the others"}};
    bool any_left_out = false;
    for (size_t i = first_; i < prediction_.sources.size(); ++i) {
      const query::PredictSource& source = prediction_.sources[i];
      residual.push_back({SignedShare(source.fitted_bytes, source.peak_bytes)});
      any_left_out = any_left_out || source.left_out_bytes;
      left_out.push_back(
          {source.left_out_bytes ? SignedShare(*source.left_out_bytes, source.peak_bytes) : ""});
    }
    table.AddRest(std::move(residual));
    if (any_left_out)
      table.AddRest(std::move(left_out));
  }

  void AddKept(const char* name, uint64_t bytes, const Unit& unit, TextTable* table) const {
    if (bytes == 0)
      return;
    TextCells cells = {{name}};
    cells.resize(1 + prediction_.sources.size() - first_);
    cells.push_back({"as measured"});
    cells.push_back({InUnit(bytes, unit.bytes)});
    table->AddRest(std::move(cells));
  }

  // Of categories, the worst of each.
  void AddResiduals() {
    std::string text;
    for (const query::PredictCategory& row : prediction_.categories) {
      size_t worst = 0;
      double worst_share = 0;
      for (size_t i = 0; i < prediction_.sources.size(); ++i) {
        // Beside the whole peak: a category that is nearly nothing may be far off.
        const double share = (static_cast<double>(row.fitted_bytes[i]) -
                              static_cast<double>(row.measured_bytes[i])) /
                             static_cast<double>(prediction_.sources[i].peak_bytes);
        if (std::abs(share) > std::abs(worst_share)) {
          worst = i;
          worst_share = share;
        }
      }
      if (std::abs(worst_share) < kShownResidual)
        continue;
      text +=
          fmt::format("{}{} {:+.1f} % of the peak at {}", text.empty() ? "" : ", ", row.category,
                      worst_share * 100, util::FormatCount(prediction_.sources[worst].size));
    }
    if (!text.empty() && !IsSingle())
      AddWrapped("Largest residuals by category: " + text + ".", Ink::kDim);
  }

  const query::Prediction& prediction_;
  size_t first_ = 0;  // recording that has a column
};

}  // namespace

std::string FormatPrediction(const query::Prediction& prediction, const Style& style) {
  return PredictionText(prediction, style).Format();
}

}  // namespace vramscope::output
