// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "output/plot/chart_parts.h"
#include "output/plot/figure.h"

namespace vramscope::output {
namespace {

constexpr size_t kMostSlices = 15;  // of the key; what is smaller is one more
constexpr double kAxisWidth = 58;
constexpr double kBarWidth = 56;
constexpr double kBarGap = 30;
constexpr double kPlotHeight = 260;
constexpr double kKeyWidth = 230;
constexpr double kHeadHeight = 20;
constexpr double kFootHeight = 34;
constexpr double kLowestLabelled = 11;  // points

const Lettering kTotal{.size = 9.5, .bold = true, .align = Align::kCentre};
const Lettering kName{.size = 9.5, .align = Align::kCentre};

// The slices of all bars in one order, the largest first.
struct Order {
  std::vector<std::string> names;
  bool has_smaller = false;

  Order(const std::vector<StackedBar>& bars, double omit_below) {
    std::map<std::string, int64_t> largest;
    uint64_t highest = 0;
    for (const StackedBar& bar : bars) {
      highest = std::max(highest, bar.row_bytes);
      for (const Slice& slice : bar.slices) {
        int64_t& most = largest[slice.name];
        most = std::max(most, slice.bytes);
      }
    }
    std::vector<std::pair<int64_t, std::string>> sorted;
    for (const auto& [name, bytes] : largest)
      sorted.emplace_back(bytes, name);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    const double limit = omit_below * static_cast<double>(highest);
    for (auto& [bytes, name] : sorted) {
      if (names.size() == kMostSlices || static_cast<double>(bytes) <= limit)
        has_smaller = true;
      else
        names.push_back(std::move(name));
    }
  }

  // The bytes of each, then those of the smaller ones.
  std::vector<int64_t> Of(const StackedBar& bar) const {
    std::vector<int64_t> bytes(names.size() + 1);
    for (const Slice& slice : bar.slices) {
      const auto found = std::find(names.begin(), names.end(), slice.name);
      bytes[static_cast<size_t>(found - names.begin())] += slice.bytes;
    }
    return bytes;
  }
};

class ComparePlot {
 public:
  ComparePlot(Canvas& canvas, const Order& order, const Axis& axis, Point corner, size_t bars)
      : canvas_(canvas), order_(order), axis_(axis), palette_(order.names) {
    left_ = corner.x + kAxisWidth;
    right_ = left_ + kBarGap + (kBarWidth + kBarGap) * static_cast<double>(bars);
    top_ = corner.y + kHeadHeight;
    bottom_ = top_ + kPlotHeight;
  }

  void DrawAxis() {
    for (const Axis::Tick& tick : axis_.ticks) {
      canvas_.Line({{left_, Y(tick.value)}, {right_, Y(tick.value)}}, kGridStroke);
      canvas_.Text({left_ - 7, Y(tick.value) + 3}, tick.label, kTickLabel);
    }
    canvas_.Text({left_ - 40, (top_ + bottom_) / 2}, axis_.unit, kUpwardsLabel);
  }

  void DrawBar(const StackedBar& bar, size_t number) {
    const double x = left_ + kBarGap + (kBarWidth + kBarGap) * static_cast<double>(number);
    const std::vector<int64_t> bytes = order_.Of(bar);
    double from = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const double to = from + static_cast<double>(bytes[i]);
      const Box box{x, Y(to), kBarWidth, Y(from) - Y(to)};
      from = to;
      if (bytes[i] == 0)
        continue;
      Fill(box, i);
      if (box.height > 1.5)
        canvas_.Line({{x, box.y}, {x + kBarWidth, box.y}}, {.colour = kWhite, .width = 0.6});
      // The number is the key's: in grey, colours say little.
      if (box.height >= kLowestLabelled && i < order_.names.size()) {
        Lettering label{.size = 8.5, .align = Align::kCentre};
        label.colour = InkOn(palette_.Of(order_.names[i]));
        canvas_.Text({x + kBarWidth / 2, box.y + box.height / 2 + 3}, std::to_string(i + 1), label);
      }
    }
    canvas_.Line({{x - 8, bottom_}, {x + kBarWidth + 8, bottom_}}, kAxisStroke);
    canvas_.Text({x + kBarWidth / 2, Y(from) - 5}, axis_.Bytes(bar.row_bytes), kTotal);
    canvas_.Text({x + kBarWidth / 2, bottom_ + 15},
                 FitText(canvas_, bar.title, kBarWidth + kBarGap - 6, kName), kName);
  }

  // As the bars are stacked, from the top down.
  void DrawKey() {
    double y = top_ + 5;
    const double x = right_ + 12;
    for (size_t i = order_.names.size() + 1; i-- > 0;) {
      const bool smaller = i == order_.names.size();
      if (smaller && !order_.has_smaller)
        continue;
      Fill({x, y - kKeySwatch / 2, kKeySwatch, kKeySwatch}, i);
      const std::string text =
          smaller ? std::string(kSmaller) : fmt::format("{}  {}", i + 1, NameOf(i));
      canvas_.Text({x + kKeySwatch + 6, y + 3.3},
                   FitText(canvas_, text, kKeyWidth - kKeySwatch - 20, kKeyName), kKeyName);
      y += kKeyGap;
    }
  }

 private:
  double Y(double bytes) const { return bottom_ - bytes / axis_.end * kPlotHeight; }
  std::string NameOf(size_t i) const {
    return order_.names[i].empty() ? "(none)" : order_.names[i];
  }
  void Fill(const Box& box, size_t i) {
    if (i < order_.names.size()) {
      canvas_.Fill(box, palette_.Of(order_.names[i]));
      return;
    }
    canvas_.Fill(box, kWhite);
    canvas_.Hatch(box, Hatching::kRising, kGrey);
    canvas_.Frame(box, {.colour = kGrey, .width = 0.8});
  }

  Canvas& canvas_;
  const Order& order_;
  const Axis& axis_;
  const Palette palette_;
  double left_ = 0;
  double right_ = 0;
  double top_ = 0;
  double bottom_ = 0;
};

}  // namespace

Figure CompareFigure(const FigureLook& look,
                     const std::vector<StackedBar>& bars,
                     double omit_below) {
  double largest = 0;
  for (const StackedBar& bar : bars)
    largest = std::max(largest, static_cast<double>(bar.row_bytes));
  const Order order(bars, omit_below);
  Figure figure;
  const double keys = kKeyGap * static_cast<double>(order.names.size() + 1);
  figure.size = {2 * kPageMargin + kAxisWidth + kBarGap +
                     (kBarWidth + kBarGap) * static_cast<double>(bars.size()) + kKeyWidth,
                 2 * kPageMargin + TitleSpace(look.title) + kHeadHeight +
                     std::max(kPlotHeight + kFootHeight, keys + 10)};
  figure.draw = [=, size = figure.size, axis = ByteAxis(largest, look.unit)](Canvas& canvas) {
    DrawTitle(canvas, look.title, size.width);
    ComparePlot plot(canvas, order, axis, {kPageMargin, kPageMargin + TitleSpace(look.title)},
                     bars.size());
    plot.DrawAxis();
    for (size_t i = 0; i < bars.size(); ++i)
      plot.DrawBar(bars[i], i);
    plot.DrawKey();
  };
  return figure;
}

}  // namespace vramscope::output
