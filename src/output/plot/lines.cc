// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "output/plot/chart_parts.h"
#include "output/plot/figure.h"
#include "util/size_text.h"

namespace vramscope::output {
namespace {

constexpr double kHeadHeight = 22;
constexpr double kAxisWidth = 52;
constexpr double kPlotWidth = kTimelinePoints;
constexpr double kPlotHeight = 210;
constexpr double kFootHeight = 34;
constexpr double kKeyWidth = 230;
constexpr double kPanelHeight = kHeadHeight + kPlotHeight + kFootHeight;
constexpr double kSmallestListed = 0.005;  // of the axis: bands below are drawn, not listed
constexpr ptrdiff_t kMostListed = 15;      // bands beside the plot
constexpr double kShortestSeam = 3;        // points, of a line between two bands
constexpr double kNsPerSecond = 1e9;

// The area that both figures draw in: axes below and left, time in seconds from the start.
class Plot {
 public:
  Plot(Canvas& canvas, Point corner, const Axis& bytes, const Axis& time)
      : canvas_(canvas), bytes_(bytes), time_(time) {
    left_ = corner.x + kAxisWidth;
    top_ = corner.y + kHeadHeight;
  }

  double X(double seconds) const {
    return left_ + std::clamp(seconds / time_.end, 0.0, 1.0) * kPlotWidth;
  }
  std::string Bytes(double bytes) const { return bytes_.Bytes(static_cast<uint64_t>(bytes)); }
  double Y(double bytes) const { return bottom() - bytes / bytes_.end * kPlotHeight; }
  double left() const { return left_; }
  double top() const { return top_; }
  double bottom() const { return top_ + kPlotHeight; }
  double key_x() const { return left_ + kPlotWidth + 16; }

  void Title(const std::string& title) {
    canvas_.Text({left_, top_ - 9}, FitText(canvas_, title, kPlotWidth + kKeyWidth, kPanelTitle),
                 kPanelTitle);
  }
  void Grid() {
    for (const Axis::Tick& tick : bytes_.ticks) {
      canvas_.Line({{left_, Y(tick.value)}, {left_ + kPlotWidth, Y(tick.value)}}, kGridStroke);
      canvas_.Text({left_ - 7, Y(tick.value) + 3}, tick.label, kTickLabel);
    }
    canvas_.Text({left_ - 38, top_ + kPlotHeight / 2}, bytes_.unit, kUpwardsLabel);
  }
  void Axes() {
    canvas_.Line({{left_, top_}, {left_, bottom()}, {left_ + kPlotWidth, bottom()}}, kAxisStroke);
    for (const Axis::Tick& tick : time_.ticks) {
      canvas_.Line({{X(tick.value), bottom()}, {X(tick.value), bottom() + 4}}, kAxisStroke);
      canvas_.Text({X(tick.value), bottom() + 14}, tick.label, kCentredLabel);
    }
    canvas_.Text({left_ + kPlotWidth / 2, bottom() + 27},
                 time_.counts ? time_.unit : fmt::format("time from the start ({})", time_.unit),
                 kCentredLabel);
  }
  // The text of a key at row `row`; its mark is the caller's.
  void KeyText(size_t row, const std::string& name, const std::string& size) {
    const double y = KeyY(row);
    const double x = key_x() + kKeySwatch + 6;
    const double room = kKeyWidth - 16 - kKeySwatch - 14 - canvas_.TextWidth(size, kKeyFigure);
    const std::string text = FitText(canvas_, name, room, kKeyName);
    canvas_.Text({x, y + 3.3}, text, kKeyName);
    canvas_.Text({x + canvas_.TextWidth(text, kKeyName) + 8, y + 3.3}, size, kKeyFigure);
  }
  // A line of the key without a mark: what its figures are.
  void KeyHead(size_t row, const std::string& text) {
    canvas_.Text({key_x(), KeyY(row) + 3.3}, text, kKeyFigure);
  }
  double KeyY(size_t row) const { return top_ + 5 + kKeyGap * static_cast<double>(row); }

 private:
  Canvas& canvas_;
  const Axis& bytes_;
  const Axis& time_;
  double left_ = 0;
  double top_ = 0;
};

double SecondsOf(int64_t time_ns, const TimelinePanel& panel) {
  return static_cast<double>(time_ns - panel.begin_ns) / kNsPerSecond;
}

// What all of them count; "": time, or not the same.
std::string CountedBy(const std::vector<TimelinePanel>& panels) {
  const bool same = std::all_of(panels.begin(), panels.end(), [&](const TimelinePanel& panel) {
    return panel.counted == panels.front().counted;
  });
  return same && !panels.empty() ? panels.front().counted : "";
}

double LengthOf(const TimelinePanel& panel) {
  return SecondsOf(panel.end_ns, panel);
}

// The height of the stack up to and with each band, by bucket.
std::vector<std::vector<double>> StackedBands(const query::Timeline& timeline) {
  std::vector<std::vector<double>> tops;
  std::vector<double> sum(timeline.time_ns.size());
  for (const std::vector<uint64_t>& band : timeline.peak) {
    for (size_t i = 0; i < sum.size() && i < band.size(); ++i)
      sum[i] += static_cast<double>(band[i]);
    tops.push_back(sum);
  }
  return tops;
}

double LargestOf(const TimelinePanel& panel) {
  double largest = 0;
  const std::vector<std::vector<double>> tops = StackedBands(panel.timeline);
  if (!tops.empty() && !tops.back().empty())
    largest = *std::max_element(tops.back().begin(), tops.back().end());
  for (const auto& [time_ns, bytes] : panel.timeline.nvml)
    largest = std::max(largest, static_cast<double>(bytes));
  return largest;
}

// A bucket's value holds until the next begins.
std::vector<Point> StepsOf(const Plot& plot,
                           const TimelinePanel& panel,
                           const std::vector<double>& values) {
  std::vector<Point> points;
  const std::vector<int64_t>& times = panel.timeline.time_ns;
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t end_ns = i + 1 < times.size() ? times[i + 1] : panel.end_ns;
    points.push_back({plot.X(SecondsOf(times[i], panel)), plot.Y(values[i])});
    points.push_back({plot.X(SecondsOf(end_ns, panel)), plot.Y(values[i])});
  }
  return points;
}

// Keeps the first, lowest, highest and last sample of each column of half a point, so that an hour
// of samples takes as much space as a second.
std::vector<Point> SamplesOf(const Plot& plot, const TimelinePanel& panel) {
  std::vector<Point> points;
  const auto& samples = panel.timeline.nvml;
  for (size_t begin = 0; begin < samples.size();) {
    const auto at = [&](size_t i) {
      return Point{plot.X(SecondsOf(samples[i].first, panel)),
                   plot.Y(static_cast<double>(samples[i].second))};
    };
    size_t end = begin + 1;
    size_t low = begin;
    size_t high = begin;
    while (end < samples.size() && at(end).x < at(begin).x + 0.5) {
      if (samples[end].second < samples[low].second)
        low = end;
      if (samples[end].second > samples[high].second)
        high = end;
      ++end;
    }
    for (const size_t i : {begin, std::min(low, high), std::max(low, high), end - 1}) {
      if (points.empty() || points.back().x != at(i).x || points.back().y != at(i).y)
        points.push_back(at(i));
    }
    begin = end;
  }
  return points;
}

// The bucket of the device's peak; where none is known, that in which the stack is highest.
size_t PeakOf(const TimelinePanel& panel, const std::vector<std::vector<double>>& tops) {
  const std::vector<int64_t>& times = panel.timeline.time_ns;
  if (panel.peak_ns) {
    const auto after = std::upper_bound(times.begin(), times.end(), *panel.peak_ns);
    return after == times.begin() ? 0 : static_cast<size_t>(after - times.begin()) - 1;
  }
  if (tops.empty())
    return 0;
  return static_cast<size_t>(std::max_element(tops.back().begin(), tops.back().end()) -
                             tops.back().begin());
}

void DrawTimeline(Canvas& canvas, Plot& plot, const TimelinePanel& panel, double largest) {
  const query::Timeline& timeline = panel.timeline;
  const std::vector<std::vector<double>> tops = StackedBands(timeline);
  std::vector<std::pair<double, size_t>> by_size;
  for (size_t band = 0; band < timeline.peak.size(); ++band) {
    const auto peak = std::max_element(timeline.peak[band].begin(), timeline.peak[band].end());
    by_size.emplace_back(peak == timeline.peak[band].end() ? 0 : static_cast<double>(*peak), band);
  }
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> names;
  for (const auto& [bytes, band] : by_size) {
    // What has no colour is grey.
    if (timeline.groups[band] != kSmaller)
      names.push_back(timeline.groups[band]);
  }
  const Palette palette(names);

  plot.Grid();
  const std::vector<double> ground(timeline.time_ns.size());
  for (size_t band = 0; band < tops.size(); ++band) {
    std::vector<Point> area = StepsOf(plot, panel, tops[band]);
    const std::vector<Point> below = StepsOf(plot, panel, band == 0 ? ground : tops[band - 1]);
    area.insert(area.end(), below.rbegin(), below.rend());
    if (!area.empty())
      canvas.Area(area, palette.Of(timeline.groups[band]), 1);
  }
  // Neighbours may look the same in grey, so they get lines. Only along the bands: vertical lines
  // would cover bands that change all the time.
  for (size_t band = 0; band + 1 < tops.size(); ++band) {
    const std::vector<Point> steps = StepsOf(plot, panel, tops[band]);
    for (size_t begin = 0, end = 0; begin < steps.size(); begin = end) {
      while (end < steps.size() && steps[end].y == steps[begin].y)
        ++end;
      if (steps[end - 1].x - steps[begin].x >= kShortestSeam)
        canvas.Line({steps[begin], steps[end - 1]}, {.colour = kWhite, .width = 0.4});
    }
  }
  const std::vector<Point> samples = SamplesOf(plot, panel);
  if (samples.size() > 1)
    canvas.Line(samples, {.colour = kBlack, .width = 1});
  plot.Axes();

  size_t row = 0;
  if (samples.size() > 1) {
    const double y = plot.KeyY(row);
    canvas.Line({{plot.key_x() - 1, y}, {plot.key_x() + kKeySwatch + 1, y}},
                {.colour = kBlack, .width = 1.2});
    plot.KeyText(row++, "NVML, device used", "");
  }
  // From the top of the stack down, as they lie.
  const size_t peak = PeakOf(panel, tops);
  if (peak < timeline.time_ns.size()) {
    std::string head = "bytes at the peak";
    if (panel.counted.empty()) {
      const int64_t at_ns = panel.peak_ns.value_or(timeline.time_ns[peak]) - panel.begin_ns;
      head += at_ns < kNsPerSecond
                  ? ", " + util::FormatDuration(at_ns)
                  : fmt::format(", {:.3f} s", static_cast<double>(at_ns) / kNsPerSecond);
    }
    plot.KeyHead(row++, head);
  }
  for (size_t i = timeline.groups.size(); i-- > 0;) {
    const auto found = std::find_if(by_size.begin(), by_size.end(),
                                    [&](const auto& entry) { return entry.second == i; });
    const bool among_largest = found - by_size.begin() < kMostListed;
    if (!among_largest || found->first < largest * kSmallestListed)
      continue;
    const double y = plot.KeyY(row);
    canvas.Fill({plot.key_x(), y - kKeySwatch / 2, kKeySwatch, kKeySwatch},
                palette.Of(timeline.groups[i]));
    plot.KeyText(row++, timeline.groups[i],
                 plot.Bytes(static_cast<double>(timeline.peak[i][peak])));
  }
}

}  // namespace

Figure TimelineFigure(const FigureLook& look, const std::vector<TimelinePanel>& panels) {
  const std::string& title = look.title;
  double largest = 0;
  double longest = 0;
  for (const TimelinePanel& panel : panels) {
    largest = std::max(largest, LargestOf(panel));
    longest = std::max(longest, LengthOf(panel));
  }
  Figure figure;
  figure.size = {2 * kPageMargin + kAxisWidth + kPlotWidth + kKeyWidth,
                 2 * kPageMargin + TitleSpace(title) +
                     (kPanelHeight + 10) * static_cast<double>(std::max<size_t>(panels.size(), 1)) -
                     10};
  figure.draw = [=, size = figure.size, title = look.title, bytes = ByteAxis(largest, look.unit),
                 time = TimeAxis(longest, CountedBy(panels))](Canvas& canvas) {
    DrawTitle(canvas, title, size.width);
    for (size_t i = 0; i < panels.size(); ++i) {
      Plot plot(canvas,
                {kPageMargin,
                 kPageMargin + TitleSpace(title) + (kPanelHeight + 10) * static_cast<double>(i)},
                bytes, time);
      plot.Title(panels[i].title);
      DrawTimeline(canvas, plot, panels[i], largest);
    }
  };
  return figure;
}

namespace {

// A step or a sample, in bytes.
struct Course {
  std::vector<std::pair<int64_t, double>> points;
  bool holds = false;  // a point's bytes hold until the next
  double largest = 0;
};

Course CourseOf(const TimelinePanel& panel, bool less_baseline) {
  Course course;
  const std::vector<std::vector<double>> tops = StackedBands(panel.timeline);
  // A recording of samples alone may have no ledger: NVML's figure is its total.
  course.holds = !tops.empty() && std::any_of(tops.back().begin(), tops.back().end(),
                                              [](double sum) { return sum > 0; });
  if (course.holds) {
    for (size_t i = 0; i < tops.back().size(); ++i)
      course.points.emplace_back(panel.timeline.time_ns[i], tops.back()[i]);
  } else {
    for (const auto& [time_ns, bytes] : panel.timeline.nvml)
      course.points.emplace_back(time_ns, static_cast<double>(bytes));
  }
  for (auto& [time_ns, bytes] : course.points) {
    if (less_baseline)
      bytes = std::max(0.0, bytes - static_cast<double>(panel.baseline_bytes));
    course.largest = std::max(course.largest, bytes);
  }
  return course;
}

std::vector<Point> PointsOf(const Plot& plot, const TimelinePanel& panel, const Course& course) {
  std::vector<Point> points;
  for (size_t i = 0; i < course.points.size(); ++i) {
    const auto& [time_ns, bytes] = course.points[i];
    points.push_back({plot.X(SecondsOf(time_ns, panel)), plot.Y(bytes)});
    const int64_t end_ns = i + 1 < course.points.size() ? course.points[i + 1].first : panel.end_ns;
    if (course.holds)
      points.push_back({plot.X(SecondsOf(end_ns, panel)), plot.Y(bytes)});
  }
  return points;
}

// Dashes distinguish the lines in grey.
Stroke StrokeOf(size_t number, double width) {
  constexpr Dashes kTurns[] = {Dashes::kNone, Dashes::kLong, Dashes::kDots, Dashes::kDashDot};
  return {.colour = HueOf(number), .width = width, .dashes = kTurns[number % std::size(kTurns)]};
}

}  // namespace

Figure OverlayFigure(const FigureLook& look,
                     const std::vector<TimelinePanel>& panels,
                     bool less_baseline) {
  double largest = 0;
  double longest = 0;
  std::vector<Course> courses;
  for (const TimelinePanel& panel : panels) {
    courses.push_back(CourseOf(panel, less_baseline));
    largest = std::max(largest, courses.back().largest);
    longest = std::max(longest, LengthOf(panel));
  }
  Figure figure;
  figure.size = {2 * kPageMargin + kAxisWidth + kPlotWidth + kKeyWidth,
                 2 * kPageMargin + TitleSpace(look.title) +
                     std::max(kPanelHeight,
                              kHeadHeight + 10 + kKeyGap * static_cast<double>(panels.size() + 1))};
  figure.draw = [=, size = figure.size, bytes = ByteAxis(largest, look.unit),
                 time = TimeAxis(longest, CountedBy(panels))](Canvas& canvas) {
    DrawTitle(canvas, look.title, size.width);
    Plot plot(canvas, {kPageMargin, kPageMargin + TitleSpace(look.title)}, bytes, time);
    plot.Grid();
    std::vector<std::vector<Point>> lines;
    for (size_t i = 0; i < panels.size(); ++i) {
      lines.push_back(PointsOf(plot, panels[i], courses[i]));
      if (lines[i].empty())
        continue;
      std::vector<Point> area = lines[i];
      area.push_back({area.back().x, plot.bottom()});
      area.push_back({area.front().x, plot.bottom()});
      canvas.Area(area, HueOf(i), 0.14);
    }
    // Lines over all the areas: none is hidden by another recording's.
    for (size_t i = 0; i < lines.size(); ++i)
      canvas.Line(lines[i], StrokeOf(i, 1.3));
    plot.Axes();
    plot.KeyHead(0, "the highest of each");
    for (size_t i = 0; i < panels.size(); ++i) {
      const double y = plot.KeyY(i + 1);
      canvas.Line({{plot.key_x() - 4, y}, {plot.key_x() + kKeySwatch + 3, y}}, StrokeOf(i, 2));
      plot.KeyText(i + 1, panels[i].title + (panels[i].sampled ? " (sampled)" : ""),
                   plot.Bytes(courses[i].largest));
    }
  };
  return figure;
}

}  // namespace vramscope::output
