// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "base/units.h"
#include "output/plot/chart_parts.h"
#include "output/plot/figure.h"
#include "output/report_fixture.h"
#include "util/size_text.h"

namespace vramscope::output {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Remembers what is drawn; every letter is half as wide as it is high.
class Sketch : public Canvas {
 public:
  struct Filled {
    Box box;
    Colour colour;
  };

  explicit Sketch(Size size) : size_(size) {}

  void Fill(const Box& box, Colour colour) override {
    Check({box.x, box.y});
    Check({box.x + box.width, box.y + box.height});
    EXPECT_GE(box.width, 0);
    EXPECT_GE(box.height, 0);
    filled.push_back({box, colour});
  }
  void Hatch(const Box& box, Hatching hatching, Colour) override {
    hatched.emplace_back(box, hatching);
  }
  void Frame(const Box&, const Stroke&) override {}
  void Line(const std::vector<Point>& points, const Stroke& stroke) override {
    for (const Point& point : points)
      Check(point);
    if (stroke.width == 1.3)
      dashes.insert(stroke.dashes);
    (stroke.dashes == Dashes::kShort ? dashed : lines).push_back(points);
  }
  void Area(const std::vector<Point>& points, Colour, double) override {
    for (const Point& point : points)
      Check(point);
    areas.push_back(points);
  }
  void Text(Point at, const std::string& text, const Lettering& lettering) override {
    Check(at);
    const double width = TextWidth(text, lettering);
    if (!lettering.upwards && lettering.align == Align::kLeft)
      Check({at.x + width, at.y});
    texts.push_back(text);
  }
  double TextWidth(const std::string& text, const Lettering& lettering) override {
    return static_cast<double>(text.size()) * lettering.size / 2;
  }

  // The boxes of one colour that are more than a key's square.
  double HeightOf(Colour colour) const {
    double height = 0;
    for (const Filled& fill : filled) {
      if (fill.colour == colour && fill.box.width > 20)
        height += fill.box.height;
    }
    return height;
  }

  std::vector<Filled> filled;
  std::vector<std::pair<Box, Hatching>> hatched;
  std::vector<std::vector<Point>> lines;
  std::set<Dashes> dashes;  // of the lines of recordings
  std::vector<std::vector<Point>> dashed;
  std::vector<std::vector<Point>> areas;
  std::vector<std::string> texts;

 private:
  void Check(Point at) const {
    EXPECT_TRUE(at.x >= 0 && at.x <= size_.width && at.y >= 0 && at.y <= size_.height)
        << at.x << ", " << at.y << " is outside " << size_.width << " x " << size_.height;
  }

  Size size_;
};

Sketch Drawn(const Figure& figure) {
  Sketch sketch(figure.size);
  figure.draw(sketch);
  return sketch;
}

StackedBar LayerBar() {
  StackedBar bar;
  bar.title = "Layer";
  bar.slices = {{Slice::Kind::kCategory, "MLP", 600 * static_cast<int64_t>(kMiB)},
                {Slice::Kind::kCategory, "Parameters", 300 * static_cast<int64_t>(kMiB)},
                {Slice::Kind::kCategory, "Pooling", 40 * static_cast<int64_t>(kMiB)},
                {Slice::Kind::kOthers, "Others", 60 * static_cast<int64_t>(kMiB)}};
  bar.row_bytes = 1000 * kMiB;
  bar.whole_bytes = 1000 * kMiB;
  return bar;
}

TEST(Axis, TicksAreRoundAndReachTheLargest) {
  const Axis bytes = ByteAxis(12.0 * 1024 * static_cast<double>(kMiB));
  EXPECT_EQ(bytes.unit, "GiB");
  EXPECT_EQ(bytes.end, 12.5 * 1024 * static_cast<double>(kMiB));
  ASSERT_EQ(bytes.ticks.size(), 6u);
  EXPECT_EQ(bytes.ticks[1].label, "2.5");
  EXPECT_EQ(ByteAxis(100 * 1024).unit, "KiB");
  EXPECT_EQ(ByteAxis(0).unit, "B");
  EXPECT_GT(ByteAxis(0).end, 0);
  const Axis time = TimeAxis(9.5);
  EXPECT_EQ(time.unit, "s");
  EXPECT_EQ(time.end, 9.5);
  EXPECT_EQ(time.ticks.back().label, "8");
  EXPECT_EQ(TimeAxis(600).unit, "min");
  EXPECT_EQ(TimeAxis(0.02).unit, "ms");
  EXPECT_THAT(TimeAxis(1, kOneInstant).ticks, ::testing::IsEmpty());
  EXPECT_EQ(TimeAxis(3, "readings").ticks.size(), 4u);
}

TEST(Axis, LabelsKeepTheirDistance) {
  EXPECT_THAT(SpreadLabels({10, 50, 90}, 14, 0, 100), ElementsAre(10, 50, 90));
  EXPECT_THAT(SpreadLabels({50, 50}, 14, 0, 100), ElementsAre(43, 57));
  EXPECT_THAT(SpreadLabels({0, 1, 2}, 10, 0, 100), ElementsAre(0, 10, 20));
  EXPECT_THAT(SpreadLabels({99, 100}, 10, 0, 100), ElementsAre(90, 100));
  EXPECT_THAT(SpreadLabels({1, 2, 3}, 80, 0, 100), ElementsAre(0, 50, 100));
  EXPECT_TRUE(SpreadLabels({}, 10, 0, 100).empty());
}

TEST(Palette, IsThatOfThePage) {
  std::ifstream file(VRAMSCOPE_PALETTE_JS);
  std::ostringstream text;
  text << file.rdbuf();
  const std::string script = text.str();
  const std::regex swatch(R"re(name: "([^"]+)", light: "#(\w\w)(\w\w)(\w\w)")re");
  size_t count = 0;
  for (std::sregex_iterator it(script.begin(), script.end(), swatch), end; it != end; ++it) {
    const auto channel = [&](size_t i) {
      return static_cast<uint8_t>(std::stoul((*it)[i].str(), nullptr, 16));
    };
    const std::string name = (*it)[1].str();
    EXPECT_EQ(Palette({name}).Of(name), (Colour{channel(2), channel(3), channel(4)})) << name;
    ++count;
  }
  EXPECT_GT(count, 10u);
  // Hues of names without a category: first those of purposes, in the page's order.
  std::smatch spare;
  ASSERT_TRUE(std::regex_search(script, spare, std::regex(R"re(SPARE_FIRST = \[([^\]]*)\])re")));
  const std::string list = spare[1].str();
  const std::regex quoted(R"re("([^"]+)")re");
  size_t hue = 0;
  for (std::sregex_iterator it(list.begin(), list.end(), quoted), end; it != end; ++it) {
    const std::string name = (*it)[1].str();
    EXPECT_EQ(HueOf(hue++), Palette({name}).Of(name)) << name;
  }
  EXPECT_GT(hue, 5u);
}

TEST(Palette, StacksAreInTheOrderOfThePage) {
  const std::vector<std::string> upwards = {
      "driver-owned / context", "parameter",       "activation", "layer.1", "unknown",
      "fragmentation",          "PyTorch / cached"};
  for (size_t i = 0; i + 1 < upwards.size(); ++i)
    EXPECT_LT(StackRank(upwards[i]), StackRank(upwards[i + 1])) << upwards[i];
  EXPECT_EQ(StackRank("layer.1"), StackRank("layer.2")) << "names of no category keep their order";
}

TEST(Palette, NamesThatMeanACategoryHaveItsColour) {
  const Palette palette({"MLP", "Parameters", "PyTorch / cached", "driver-owned / context"});
  EXPECT_EQ(palette.Of("Parameters"), Palette({"parameter"}).Of("parameter"));
  EXPECT_EQ(palette.Of("PyTorch / cached"), Palette({"cached"}).Of("cached"));
  EXPECT_EQ(palette.Of("driver-owned / context"), Palette({"driver"}).Of("driver"));
  EXPECT_NE(palette.Of("MLP"), palette.Of("Parameters"));
  EXPECT_EQ(InkOn(Palette({"driver"}).Of("driver")), kWhite);
  EXPECT_EQ(InkOn(Palette({"cached"}).Of("cached")), kBlack);
}

TEST(TwoBar, HeightsAreBytes) {
  const Sketch sketch = Drawn(TwoBarFigure({""}, {{"GPU 0", "peak", {LayerBar(), LayerBar()}}}));
  const Palette palette({"MLP", "Parameters", "Pooling"});
  const double mlp = sketch.HeightOf(palette.Of("MLP"));
  EXPECT_GT(mlp, 100);
  EXPECT_NEAR(sketch.HeightOf(palette.Of("Parameters")), mlp / 2, 1e-6);
  EXPECT_NEAR(sketch.HeightOf(palette.Of("Pooling")), mlp / 15, 1e-6);
  // Others: in two bars and in two keys.
  ASSERT_EQ(sketch.hatched.size(), 4u);
  EXPECT_NEAR(sketch.hatched[0].first.height, mlp / 20, 1e-6);
}

TEST(TwoBar, SlicesBelowFivePercentHaveNoShareButAKey) {
  const Sketch sketch = Drawn(TwoBarFigure({"Mine"}, {{"GPU 0", "peak", {LayerBar()}}}));
  EXPECT_THAT(sketch.texts, Contains("60.0 %"));
  EXPECT_THAT(sketch.texts, Contains("6.0 %"));
  EXPECT_THAT(sketch.texts, Not(Contains("4.0 %")));
  EXPECT_THAT(sketch.texts, Contains("Pooling"));
  EXPECT_THAT(sketch.texts, Contains("40.0 MiB"));
  EXPECT_THAT(sketch.texts, Contains("Mine"));
}

TEST(TwoBar, AnExpectedSumBelowTheRowsIsALineAcrossThem) {
  StackedBar bar = LayerBar();
  bar.whole_bytes = 800 * kMiB;
  bar.slices.push_back(
      {Slice::Kind::kUntrackable, "Untrackable", -200 * static_cast<int64_t>(kMiB)});
  const Sketch sketch = Drawn(TwoBarFigure({""}, {{"GPU 0", "peak", {bar}}}));
  ASSERT_EQ(sketch.dashed.size(), 2u) << "the line and its key";
  EXPECT_EQ(sketch.dashed[0][0].y, sketch.dashed[0][1].y);
  EXPECT_THAT(sketch.texts, Contains("\u2212200 MiB"));
  EXPECT_THAT(sketch.texts, Contains("75.0 %")) << "shares are of the expected sum";
}

TEST(TwoBar, UntrackableIsHatchedUnlikeOthers) {
  StackedBar bar = LayerBar();
  bar.whole_bytes = 1100 * kMiB;
  bar.slices.push_back(
      {Slice::Kind::kUntrackable, "Untrackable", 100 * static_cast<int64_t>(kMiB)});
  const Sketch sketch = Drawn(TwoBarFigure({""}, {{"GPU 0", "peak", {bar}}}));
  ASSERT_EQ(sketch.hatched.size(), 4u);
  EXPECT_EQ(sketch.hatched[0].second, Hatching::kRising);
  EXPECT_EQ(sketch.hatched[1].second, Hatching::kCrossed);
}

TEST(TwoBar, ManyKeysAndManyPanelsFit) {
  StackedBar bar;
  bar.title = "A title that is much longer than the bar below which it stands";
  for (int i = 0; i < 45; ++i) {
    bar.slices.push_back({Slice::Kind::kCategory,
                          "category number " + std::to_string(i) + " of a long, long list of them",
                          static_cast<int64_t>(i < 3 ? kMiB : 1)});
    bar.row_bytes += static_cast<uint64_t>(bar.slices.back().bytes);
  }
  bar.whole_bytes = bar.row_bytes;
  Drawn(TwoBarFigure({"t"}, {7, {"GPU 0", "peak", {bar, bar, bar}}}));
  Drawn(CategoryFigure({"t"}, {7, {"GPU 0", "peak", {bar, bar}}}));
  Drawn(TwoBarFigure({""}, {}));
  Drawn(CategoryFigure({""}, {}));
  Drawn(TwoBarFigure({""}, {{"GPU 0", "peak", {StackedBar()}}}));
}

TEST(Categories, EachHasItsShareAndThePanelTheTotal) {
  const Sketch sketch = Drawn(CategoryFigure({""}, {{"GPU 0", "peak 1.00 GiB", {LayerBar()}}}));
  EXPECT_THAT(sketch.texts, Contains("Layer, peak 1.00 GiB; total 1000 MiB"));
  EXPECT_THAT(sketch.texts, Contains("4.0 %"));
  std::vector<double> lengths;
  for (const Sketch::Filled& fill : sketch.filled)
    lengths.push_back(fill.box.width);
  ASSERT_EQ(lengths.size(), 4u);
  EXPECT_NEAR(lengths[0], lengths[1] * 2, 1e-6);
  EXPECT_NEAR(lengths[0], lengths[3] * 10, 1e-6);
}

TimelinePanel Panel() {
  TimelinePanel panel;
  panel.title = "GPU 0";
  panel.begin_ns = 1'000'000'000;
  panel.end_ns = 5'000'000'000;
  panel.timeline.groups = {"driver", "activation"};
  panel.timeline.time_ns = {1'000'000'000, 3'000'000'000};
  panel.timeline.peak = {{kMiB, kMiB}, {0, 3 * kMiB}};
  panel.timeline.nvml = {
      {1'000'000'000, kMiB}, {2'000'000'000, 2 * kMiB}, {4'900'000'000, 5 * kMiB}};
  return panel;
}

TEST(TimelinePlot, BandsLieOnEachOtherBelowNvml) {
  const Sketch sketch = Drawn(TimelineFigure({"t"}, {Panel(), Panel()}));
  ASSERT_EQ(sketch.areas.size(), 4u);
  const std::vector<Point>& activation = sketch.areas[1];
  // Along the top, then back along the top of the band below.
  ASSERT_EQ(activation.size(), 8u);
  EXPECT_EQ(activation[0].y, activation[7].y) << "nothing in the first bucket";
  const std::vector<Point>& driver = sketch.areas[0];
  const double one = driver[4].y - driver[3].y;
  EXPECT_GT(one, 10);
  EXPECT_NEAR(activation[4].y - activation[3].y, 3 * one, 1e-6);
  EXPECT_THAT(sketch.texts, Contains("NVML, device used"));
}

TEST(TimelinePlot, BandsAreStackedAsOnThePageAndAnNvmlThatDoesNotCountIsLeftOut) {
  FakeRecording recording;
  query::Timeline timeline;
  timeline.device = recording.AddDevice(tables::DeviceKind::kGpu, 0);
  timeline.groups = {"PyTorch / cached", "parameter", "driver"};
  timeline.time_ns = {recording.tables().session.begin_ns};
  timeline.peak = {{kMiB}, {2 * kMiB}, {3 * kMiB}};
  timeline.nvml = {{recording.tables().session.begin_ns, 0}};
  const std::vector<TimelinePanel> panels = TimelinePanels({timeline}, recording, "");
  ASSERT_EQ(panels.size(), 1u);
  const query::Timeline& stacked = panels[0].timeline;
  EXPECT_THAT(stacked.groups, ElementsAre("driver", "parameter", "PyTorch / cached"));
  EXPECT_EQ(stacked.peak, (std::vector<std::vector<uint64_t>>{{3 * kMiB}, {2 * kMiB}, {kMiB}}));
  EXPECT_TRUE(stacked.nvml.empty());
}

TEST(TimelinePlot, TheKeyHasEachBandAtOneStatedInstant) {
  TimelinePanel panel = Panel();
  panel.timeline.groups = {"cached", "activation"};
  panel.timeline.peak = {{9 * kMiB, 2 * kMiB}, {0, 8 * kMiB}};
  panel.timeline.nvml.clear();
  const Sketch sketch = Drawn(TimelineFigure({"t"}, {panel}));
  // The cache was 9 MiB before: figures of a key are of one instant and add up.
  EXPECT_THAT(sketch.texts, Contains("bytes at the peak, 2.000 s"));
  EXPECT_THAT(sketch.texts, Contains("8.00 MiB"));
  EXPECT_THAT(sketch.texts, Contains("2.00 MiB"));
  EXPECT_THAT(sketch.texts, testing::Not(Contains("9.00 MiB")));
  panel.peak_ns = panel.begin_ns + 327'590;
  EXPECT_THAT(Drawn(TimelineFigure({"t"}, {panel})).texts,
              Contains("bytes at the peak, " + util::FormatDuration(327'590)));
}

TEST(TimelinePlot, SpikesOfOneBucketAreOnePointWide) {
  TimelinePanel panel = Panel();
  panel.timeline.groups = {"activation"};
  panel.timeline.time_ns.clear();
  panel.timeline.peak = {std::vector<uint64_t>(kTimelinePoints, kMiB)};
  constexpr auto kPoints = static_cast<int64_t>(kTimelinePoints);
  for (int64_t i = 0; i < kPoints; ++i)
    panel.timeline.time_ns.push_back(panel.begin_ns + i * 4'000'000'000 / kPoints);
  for (const size_t at : {7u, 131u, 500u})
    panel.timeline.peak[0][at] = 5 * kMiB;
  const Sketch sketch = Drawn(TimelineFigure({"t"}, {panel}));
  const std::vector<Point>& area = sketch.areas[0];
  for (const size_t at : {7u, 131u, 500u}) {
    EXPECT_NEAR(area[2 * at + 1].x - area[2 * at].x, 1, 1e-6);
    EXPECT_NEAR(area[2 * at].x, std::round(area[2 * at].x), 1e-6) << "between two pixels";
    EXPECT_EQ(area[2 * at].y, area[14].y);
  }
}

TEST(Keys, NumbersSayWhatTheyCount) {
  std::vector<TimelinePanel> panels = {Panel()};
  panels[0].timeline.groups = {"0", "(none)"};
  NameNumbers("rank", &panels);
  EXPECT_THAT(panels[0].timeline.groups, testing::ElementsAre("rank 0", "(none)"));
}

TEST(OverlayPlot, EachRecordingHasALineFromItsOwnStart) {
  TimelinePanel samples = Panel();
  samples.title = "samples alone";
  samples.begin_ns += 100'000'000'000;
  samples.end_ns += 100'000'000'000;
  samples.timeline.groups.clear();
  samples.timeline.peak.clear();
  samples.timeline.time_ns.clear();
  for (auto& [time_ns, bytes] : samples.timeline.nvml)
    time_ns += 100'000'000'000;
  const Sketch sketch = Drawn(OverlayFigure({}, {Panel(), samples}));
  ASSERT_EQ(sketch.areas.size(), 2u);
  EXPECT_EQ(sketch.areas[0][0].x, sketch.areas[1][0].x);
  EXPECT_THAT(sketch.texts, Contains("4.00 MiB"));
  EXPECT_THAT(sketch.texts, Contains("5.00 MiB"));
  Drawn(OverlayFigure({}, {}));
  Drawn(CompareFigure({}, {}));
  Drawn(TimelineFigure({""}, {}));
}

TEST(OverlayPlot, LessTheBaselineNothingIsNegative) {
  TimelinePanel panel = Panel();
  panel.baseline_bytes = 2 * kMiB;
  panel.sampled = true;
  const Sketch sketch = Drawn(OverlayFigure({}, {panel}, true));
  EXPECT_THAT(sketch.texts, Contains("2.00 MiB"));
  EXPECT_THAT(sketch.texts, Contains("GPU 0 (sampled)"));
  ASSERT_EQ(sketch.areas.size(), 1u);
  const std::vector<Point>& area = sketch.areas[0];
  EXPECT_EQ(area[0].y, area.back().y) << "1 MiB less 2";
  EXPECT_LT(area[2].y, area[0].y);
}

TEST(Overlay, OfSeveralRecordingsEveryLineHasItsDashes) {
  const Sketch sketch = Drawn(OverlayFigure({}, {Panel(), Panel(), Panel()}));
  EXPECT_EQ(sketch.dashes.size(), 3u);
}

TEST(TimelinePlot, SmallBandsBecomeOne) {
  std::vector<TimelinePanel> panels = {Panel()};
  panels[0].timeline.groups = {"a", "b", "c"};
  panels[0].timeline.peak = {{10, 2}, {100, 100}, {1, 9}};
  OmitBelow(0.1, &panels);
  EXPECT_THAT(panels[0].timeline.groups, testing::ElementsAre("b", kSmaller));
  EXPECT_THAT(panels[0].timeline.peak[1], testing::ElementsAre(11, 11));
  OmitBelow(0, &panels);
  EXPECT_THAT(panels[0].timeline.groups, testing::ElementsAre("b", kSmaller));
}

TEST(Categories, SmallOnesBecomeOneInFrontOfTheRest) {
  StackedBar bar;
  bar.slices = {{Slice::Kind::kCategory, "a", 900},
                {Slice::Kind::kCategory, "b", 60},
                {Slice::Kind::kCategory, "c", 10},
                {Slice::Kind::kOthers, "Others", 30}};
  bar.row_bytes = bar.whole_bytes = 1000;
  std::vector<BarPanel> panels = {{"GPU 0", "peak", {bar}}};
  OmitBelow(0.06, &panels);
  ASSERT_EQ(panels[0].bars[0].slices.size(), 3u);
  EXPECT_EQ(panels[0].bars[0].slices[1].name, kSmaller);
  EXPECT_EQ(panels[0].bars[0].slices[1].bytes, 70);
}

StackedBar PeakBar(const std::string& title, int64_t first, int64_t second) {
  StackedBar bar;
  bar.title = title;
  bar.slices = {{Slice::Kind::kCategory, "one", first}, {Slice::Kind::kCategory, "two", second}};
  bar.row_bytes = bar.whole_bytes = static_cast<uint64_t>(first + second);
  return bar;
}

TEST(ComparePlot, BarsAreStackedInOneOrder) {
  const Sketch sketch =
      Drawn(CompareFigure({"t"}, {PeakBar("A", 4 * kMiB, kMiB), PeakBar("B", kMiB, 2 * kMiB)}));
  EXPECT_THAT(sketch.texts, Contains("5.00 MiB"));
  EXPECT_THAT(sketch.texts, Contains("3.00 MiB"));
  EXPECT_THAT(sketch.texts, Contains("1  one"));
  ASSERT_GE(sketch.filled.size(), 4u);
  // "one" is below "two" in both, and a byte is as high in both.
  EXPECT_GT(sketch.filled[0].box.y, sketch.filled[1].box.y);
  EXPECT_GT(sketch.filled[2].box.y, sketch.filled[3].box.y);
  EXPECT_NEAR(sketch.filled[0].box.height, 4 * sketch.filled[2].box.height, 1e-6);
}

TEST(ComparePlot, WhatIsSmallIsHatched) {
  const Sketch sketch = Drawn(
      CompareFigure({}, {PeakBar("A", 100 * kMiB, kMiB), PeakBar("B", 90 * kMiB, 2 * kMiB)}, 0.05));
  EXPECT_THAT(sketch.texts, Contains(kSmaller));
  EXPECT_THAT(sketch.texts, testing::Not(Contains("2  two")));
}

TEST(ByteAxis, HasTheUnitThatWasAskedFor) {
  EXPECT_EQ(ByteAxis(3e9).unit, "GiB");
  const Axis axis = ByteAxis(3e9, "GB");
  EXPECT_EQ(axis.unit, "GB");
  EXPECT_NEAR(axis.end, 3e9, 1);
  EXPECT_EQ(ByteAxis(0, "MiB").unit, "MiB");
  EXPECT_EQ(UnitBytes("bananas"), 0);
}

// Headings, keys and totals say what the axis says: nothing is left in another unit.
TEST(Figures, AUnitIsThatOfAllFigures) {
  const FigureLook look{.unit = "kB"};
  const std::vector<BarPanel> bars = {{"GPU 0", "peak", {LayerBar()}}};
  for (const Figure& figure :
       {TwoBarFigure(look, bars), CategoryFigure(look, bars), TimelineFigure(look, {Panel()}),
        OverlayFigure(look, {Panel()}), CompareFigure(look, {PeakBar("A", 4 * kMiB, kMiB)})}) {
    const Sketch sketch = Drawn(figure);
    EXPECT_THAT(sketch.texts, Contains(testing::EndsWith(" kB")));
    for (const std::string& text : sketch.texts)
      EXPECT_THAT(text, Not(testing::HasSubstr("iB")));
  }
  EXPECT_EQ(BytesIn(1'234'567, "MB"), "1.23 MB");
  EXPECT_EQ(BytesIn(12'345'678, "MB"), "12.3 MB");
  EXPECT_EQ(BytesIn(7, "MB"), "<0.001 MB");
  EXPECT_EQ(BytesIn(0, "MB"), "0.000 MB");
  EXPECT_EQ(BytesIn(3 * kMiB, ""), "3.00 MiB");
}

TEST(Render, EveryFormatHasItsSignature) {
  const Figure figure = TwoBarFigure({"t\x01\xff"}, {{"GPU 0", "peak", {LayerBar()}}});
  const util::Result<std::string> svg = RenderFigure(figure, ImageFormat::kSvg);
  if (!svg.ok())
    GTEST_SKIP() << svg.status().message();
  EXPECT_TRUE(svg->starts_with("<?xml"));
  EXPECT_THAT(*svg, HasSubstr("</svg>"));
  EXPECT_TRUE(RenderFigure(figure, ImageFormat::kPng)->starts_with("\x89PNG"));
  EXPECT_TRUE(RenderFigure(figure, ImageFormat::kPdf)->starts_with("%PDF"));
  Figure huge = figure;
  huge.size = {1e6, 1e6};
  EXPECT_THAT(RenderFigure(huge, ImageFormat::kPng).status().message(), HasSubstr("Cairo reports"));
  EXPECT_FALSE(ImageFormatOf("a.jpg").ok());
  EXPECT_EQ(*ImageFormatOf("a.b.pdf"), ImageFormat::kPdf);
}

}  // namespace
}  // namespace vramscope::output
