// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "output/plot/chart_parts.h"
#include "output/plot/figure.h"
#include "output/terminal.h"

namespace vramscope::output {
namespace {

constexpr double kSmallestLabelled = 0.05;  // of the whole
constexpr double kLowestLabelled = 11;      // points

const Lettering kSubtitle{.size = 9.5, .colour = kGrey};

double ShareOf(int64_t bytes, const StackedBar& bar) {
  return bar.whole_bytes == 0 ? 0
                              : static_cast<double>(bytes) / static_cast<double>(bar.whole_bytes);
}

std::string SignedPercent(double share) {
  return (share < 0 ? "\u2212" : "") + Percent(std::abs(share));
}

std::string SignedBytes(int64_t bytes, const Axis& axis) {
  return (bytes < 0 ? "\u2212" : "") + axis.Bytes(static_cast<uint64_t>(std::abs(bytes)));
}

double HeightOf(const StackedBar& bar) {
  return static_cast<double>(std::max(bar.row_bytes, bar.whole_bytes));
}

// Others and Untrackable look different from categories.
void FillSlice(Canvas& canvas, const Box& box, const Slice& slice, const Palette& palette) {
  if (slice.kind == Slice::Kind::kCategory) {
    canvas.Fill(box, palette.Of(slice.name));
    return;
  }
  canvas.Fill(box, kWhite);
  canvas.Hatch(box, slice.kind == Slice::Kind::kOthers ? Hatching::kRising : Hatching::kCrossed,
               kGrey);
  canvas.Frame(
      box,
      {.colour = kGrey, .width = 0.8, .dashes = slice.bytes < 0 ? Dashes::kShort : Dashes::kNone});
}

Palette PaletteOf(const std::vector<const StackedBar*>& bars) {
  std::vector<std::pair<int64_t, std::string>> largest;
  for (const StackedBar* bar : bars) {
    for (const Slice& slice : bar->slices) {
      const auto known = std::find_if(largest.begin(), largest.end(), [&](const auto& entry) {
        return entry.second == slice.name;
      });
      if (slice.kind != Slice::Kind::kCategory)
        continue;
      if (known == largest.end())
        largest.emplace_back(slice.bytes, slice.name);
      else
        known->first = std::max(known->first, slice.bytes);
    }
  }
  std::stable_sort(largest.begin(), largest.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> names;
  for (auto& [bytes, name] : largest)
    names.push_back(std::move(name));
  return Palette(names);
}

// Two stacked bars ----------------------------------------------------------------------------

constexpr double kAxisWidth = 58;
constexpr double kBarWidth = 84;
constexpr double kLeaderWidth = 26;
constexpr double kKeyWidth = 176;
constexpr Stroke kExpectedStroke{.colour = kBlack, .width = 1, .dashes = Dashes::kShort};
constexpr double kSlotWidth = kBarWidth + kLeaderWidth + kKeyWidth;
constexpr double kHeadHeight = 38;
constexpr double kFootHeight = 34;

class StackedPanel {
 public:
  StackedPanel(Canvas& canvas,
               const BarPanel& panel,
               const Axis& axis,
               const Palette& palette,
               Point corner,
               double height)
      : canvas_(canvas),
        panel_(panel),
        axis_(axis),
        palette_(palette),
        left_(corner.x + kAxisWidth) {
    top_ = corner.y + kHeadHeight;
    bottom_ = corner.y + height - kFootHeight;
    const double width = kAxisWidth + kSlotWidth * static_cast<double>(panel.bars.size());
    canvas.Text({left_, corner.y + 12},
                FitText(canvas, panel.title, width - kAxisWidth, kPanelTitle), kPanelTitle);
    canvas.Text({left_, corner.y + 25}, panel.subtitle, kSubtitle);
  }

  void Draw() {
    DrawAxis();
    for (size_t i = 0; i < panel_.bars.size(); ++i)
      DrawBar(panel_.bars[i], left_ + 16 + kSlotWidth * static_cast<double>(i));
  }

 private:
  // One entry of the key beside a bar.
  struct Key {
    const Slice* slice;
    double middle;
  };

  double Y(double bytes) const { return bottom_ - bytes / axis_.end * (bottom_ - top_); }

  void DrawAxis() {
    canvas_.Line({{left_, top_}, {left_, bottom_}}, kAxisStroke);
    for (const Axis::Tick& tick : axis_.ticks) {
      canvas_.Line({{left_ - 4, Y(tick.value)}, {left_, Y(tick.value)}}, kAxisStroke);
      canvas_.Text({left_ - 7, Y(tick.value) + 3}, tick.label, kTickLabel);
    }
    canvas_.Text({left_ - 40, (top_ + bottom_) / 2}, axis_.unit, kUpwardsLabel);
  }

  void DrawBar(const StackedBar& bar, double x) {
    std::vector<Key> keys;
    double from = 0;
    for (const Slice& slice : bar.slices) {
      if (slice.bytes < 0) {
        keys.push_back({&slice, DrawExcess(slice, from, x)});
        continue;
      }
      const double to = from + static_cast<double>(slice.bytes);
      const Box box{x, Y(to), kBarWidth, Y(from) - Y(to)};
      FillSlice(canvas_, box, slice, palette_);
      if (slice.kind == Slice::Kind::kCategory && box.height > 1.5) {
        canvas_.Line({{x, box.y}, {x + kBarWidth, box.y}}, {.colour = kWhite, .width = 0.6});
      }
      DrawShare(box, slice, bar);
      keys.push_back({&slice, box.y + box.height / 2});
      from = to;
    }
    canvas_.Line({{x - 8, bottom_}, {x + kBarWidth + 8, bottom_}}, kAxisStroke);
    Lettering name{.size = 10.5, .bold = true, .align = Align::kCentre};
    canvas_.Text({x + kBarWidth / 2, bottom_ + 15},
                 FitText(canvas_, bar.title, kBarWidth + kLeaderWidth, name), name);
    Lettering total{.size = 9.5, .colour = kGrey, .align = Align::kCentre};
    canvas_.Text({x + kBarWidth / 2, bottom_ + 28}, axis_.Bytes(bar.whole_bytes), total);
    DrawKeys(keys, x + kBarWidth);
  }

  // Rows beyond the expected sum: a line where they should have ended, a bracket beside those that
  // are too many. Returns the line's height.
  double DrawExcess(const Slice& slice, double rows, double x) {
    const double expected = Y(rows + static_cast<double>(slice.bytes));
    canvas_.Line({{x - 5, Y(rows)}, {x - 9, Y(rows)}, {x - 9, expected}, {x - 5, expected}},
                 {.colour = kBlack, .width = 0.8});
    canvas_.Line({{x, expected}, {x + kBarWidth, expected}}, kExpectedStroke);
    return expected;
  }

  void DrawShare(const Box& box, const Slice& slice, const StackedBar& bar) {
    const double share = ShareOf(slice.bytes, bar);
    if (share < kSmallestLabelled || box.height < kLowestLabelled)
      return;
    const std::string text = SignedPercent(share);
    Lettering lettering{.size = 10, .align = Align::kCentre};
    const Point at{box.x + box.width / 2, box.y + box.height / 2 + 3.5};
    if (slice.kind == Slice::Kind::kCategory) {
      lettering.colour = InkOn(palette_.Of(slice.name));
    } else {
      // Hatching would run through the figures.
      const double width = canvas_.TextWidth(text, lettering) + 6;
      canvas_.Fill({at.x - width / 2, at.y - 10.5, width, 14}, kWhite);
    }
    canvas_.Text(at, text, lettering);
  }

  void DrawKeys(std::vector<Key> keys, double x) {
    std::sort(keys.begin(), keys.end(),
              [](const Key& a, const Key& b) { return a.middle < b.middle; });
    std::vector<double> wanted;
    for (const Key& key : keys)
      wanted.push_back(key.middle);
    const std::vector<double> places = SpreadLabels(wanted, kKeyGap, top_ + 4, bottom_ - 4);
    for (size_t i = 0; i < keys.size(); ++i) {
      const Slice& slice = *keys[i].slice;
      const double y = places[i];
      const double end = x + kLeaderWidth;
      canvas_.Line({{x + 1, keys[i].middle}, {x + 6, keys[i].middle}, {end - 8, y}, {end - 3, y}},
                   {.colour = kGrey, .width = 0.5});
      if (slice.bytes < 0)
        canvas_.Line({{end - 1, y}, {end + kKeySwatch + 1, y}}, kExpectedStroke);
      else
        FillSlice(canvas_, {end, y - kKeySwatch / 2, kKeySwatch, kKeySwatch}, slice, palette_);
      Lettering size{.size = 9.5, .colour = kGrey};
      const std::string bytes = SignedBytes(slice.bytes, axis_);
      const double room = kKeyWidth - kKeySwatch - 5 - 8 - canvas_.TextWidth(bytes, size) - 12;
      const Lettering name{.size = 9.5};
      const std::string text = FitText(canvas_, slice.name, room, name);
      const double text_x = end + kKeySwatch + 5;
      canvas_.Text({text_x, y + 3.3}, text, name);
      canvas_.Text({text_x + canvas_.TextWidth(text, name) + 8, y + 3.3}, bytes, size);
    }
  }

  Canvas& canvas_;
  const BarPanel& panel_;
  const Axis& axis_;
  const Palette& palette_;
  double left_;
  double top_ = 0;
  double bottom_ = 0;
};

// Bars of categories --------------------------------------------------------------------------

constexpr double kNameWidth = 132;
constexpr double kLengthWidth = 190;
constexpr double kFigureWidth = 104;
constexpr double kRowHeight = 17;
constexpr double kThickness = 11;
constexpr double kGridGap = 22;

void DrawCategories(Canvas& canvas,
                    const BarPanel& panel,
                    const StackedBar& bar,
                    const Axis& axis,
                    const Palette& palette,
                    Point corner,
                    size_t rows) {
  const double left = corner.x + kNameWidth;
  const double top = corner.y + kHeadHeight;
  const double bottom = top + kRowHeight * static_cast<double>(rows);
  const double width = kNameWidth + kLengthWidth + kFigureWidth;
  canvas.Text({corner.x, corner.y + 12}, FitText(canvas, panel.title, width, kPanelTitle),
              kPanelTitle);
  canvas.Text(
      {corner.x, corner.y + 25},
      fmt::format("{}, {}; total {}", bar.title, panel.subtitle, axis.Bytes(bar.whole_bytes)),
      kSubtitle);
  for (const Axis::Tick& tick : axis.ticks) {
    const double x = left + tick.value / axis.end * kLengthWidth;
    canvas.Line({{x, top}, {x, bottom}}, kGridStroke);
    canvas.Text({x, bottom + 12}, tick.label, kCentredLabel);
  }
  Lettering unit = kTickLabel;
  unit.align = Align::kLeft;
  canvas.Text({left + kLengthWidth + 14, bottom + 12}, axis.unit, unit);
  for (size_t i = 0; i < bar.slices.size(); ++i) {
    const Slice& slice = bar.slices[i];
    const double y = top + kRowHeight * static_cast<double>(i);
    const double length =
        std::max(0.8, static_cast<double>(std::abs(slice.bytes)) / axis.end * kLengthWidth);
    FillSlice(canvas, {left, y + (kRowHeight - kThickness) / 2, length, kThickness}, slice,
              palette);
    const double base = y + kRowHeight / 2 + 3.4;
    Lettering name{.size = 9.5, .align = Align::kRight};
    canvas.Text({left - 6, base}, FitText(canvas, slice.name, kNameWidth - 6, name), name);
    const Lettering share{.size = 9.5};
    const std::string percent = SignedPercent(ShareOf(slice.bytes, bar));
    canvas.Text({left + length + 5, base}, percent, share);
    Lettering size{.size = 9, .colour = kGrey};
    canvas.Text({left + length + 5 + canvas.TextWidth(percent, share) + 6, base},
                SignedBytes(slice.bytes, axis), size);
  }
  canvas.Line({{left, top}, {left, bottom}}, kAxisStroke);
}

size_t GridColumns(size_t panels) {
  return std::max<size_t>(1,
                          static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(panels)))));
}

}  // namespace

Figure TwoBarFigure(const FigureLook& look, const std::vector<BarPanel>& panels) {
  const std::string& title = look.title;
  double largest = 0;
  size_t bars = 1;
  size_t keys = 0;
  for (const BarPanel& panel : panels) {
    bars = std::max(bars, panel.bars.size());
    for (const StackedBar& bar : panel.bars) {
      largest = std::max(largest, HeightOf(bar));
      keys = std::max(keys, bar.slices.size());
    }
  }
  // As high as the longest key needs.
  const double height =
      kHeadHeight + kFootHeight + std::max(300.0, kKeyGap * static_cast<double>(keys) + 8);
  const double width = kAxisWidth + 16 + kSlotWidth * static_cast<double>(bars);
  const size_t columns = std::min<size_t>(panels.size(), panels.size() > 4 ? 3 : 2);
  const size_t across = std::max<size_t>(columns, 1);
  const size_t down = (panels.size() + across - 1) / across;
  Figure figure;
  figure.size = {2 * kPageMargin + width * static_cast<double>(across),
                 2 * kPageMargin + TitleSpace(title) +
                     (height + kGridGap) * static_cast<double>(down) - kGridGap};
  figure.draw = [=, size = figure.size, title = look.title,
                 axis = ByteAxis(largest, look.unit)](Canvas& canvas) {
    DrawTitle(canvas, title, size.width);
    // One palette: a colour means one thing, whichever bar it is in.
    std::vector<const StackedBar*> all;
    for (const BarPanel& panel : panels) {
      for (const StackedBar& bar : panel.bars)
        all.push_back(&bar);
    }
    const Palette palette = PaletteOf(all);
    for (size_t i = 0; i < panels.size(); ++i) {
      const Point corner{
          kPageMargin + width * static_cast<double>(i % across),
          kPageMargin + TitleSpace(title) + (height + kGridGap) * static_cast<double>(i / across)};
      StackedPanel(canvas, panels[i], axis, palette, corner, height).Draw();
    }
  };
  return figure;
}

Figure CategoryFigure(const FigureLook& look, const std::vector<BarPanel>& panels) {
  const std::string& title = look.title;
  struct Cell {
    size_t panel;
    size_t bar;
  };
  std::vector<Cell> cells;
  double largest = 0;
  size_t rows = 1;
  for (size_t i = 0; i < panels.size(); ++i) {
    for (size_t j = 0; j < panels[i].bars.size(); ++j) {
      cells.push_back({i, j});
      rows = std::max(rows, panels[i].bars[j].slices.size());
      for (const Slice& slice : panels[i].bars[j].slices)
        largest = std::max(largest, static_cast<double>(std::abs(slice.bytes)));
    }
  }
  const size_t across = GridColumns(cells.size());
  const size_t down = (cells.size() + across - 1) / across;
  const double width = kNameWidth + kLengthWidth + kFigureWidth;
  const double height = kHeadHeight + kRowHeight * static_cast<double>(rows) + 18;
  Figure figure;
  figure.size = {2 * kPageMargin + (width + kGridGap) * static_cast<double>(across) - kGridGap,
                 2 * kPageMargin + TitleSpace(title) +
                     (height + kGridGap) * static_cast<double>(std::max<size_t>(down, 1)) -
                     kGridGap};
  figure.draw = [=, size = figure.size, title = look.title,
                 axis = ByteAxis(largest, look.unit)](Canvas& canvas) {
    DrawTitle(canvas, title, size.width);
    std::vector<const StackedBar*> bars;
    for (const Cell& cell : cells)
      bars.push_back(&panels[cell.panel].bars[cell.bar]);
    const Palette palette = PaletteOf(bars);
    for (size_t i = 0; i < cells.size(); ++i) {
      const Point corner{
          kPageMargin + (width + kGridGap) * static_cast<double>(i % across),
          kPageMargin + TitleSpace(title) + (height + kGridGap) * static_cast<double>(i / across)};
      DrawCategories(canvas, panels[cells[i].panel], *bars[i], axis, palette, corner, rows);
    }
  };
  return figure;
}

}  // namespace vramscope::output
