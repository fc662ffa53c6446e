// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "output/plot/canvas.h"
#include "query/dimensions/report.h"
#include "query/keywords/keywords.h"
#include "tables/recording.h"

// The figures of `vramscope plot`. Each knows its size and draws itself, the same on every canvas.
namespace vramscope::output {

struct Figure {
  Size size;
  std::function<void(Canvas&)> draw;
};

// Options of all figures.
struct FigureLook {
  std::string title{};  // a line above; may be empty
  std::string unit{};   // of all bytes, as UnitBytes() knows them; "": what suits
};

util::Result<std::string> RenderFigure(const Figure& figure, ImageFormat format);

// The name of a slice that combines small ones.
inline constexpr char kSmaller[] = "(smaller)";

// What a dictionary makes of a device.
struct Slice {
  enum class Kind : uint8_t { kCategory, kOthers, kUntrackable } kind = Kind::kCategory;
  std::string name;
  int64_t bytes = 0;  // negative: an expected sum below the rows
};
struct StackedBar {
  std::string title;
  std::vector<Slice> slices;  // largest first, then Others, then Untrackable
  uint64_t row_bytes = 0;     // all but Untrackable
  uint64_t whole_bytes = 0;   // 100 %: the expected sum, or the rows without one
};
struct BarPanel {
  std::string title;
  std::string subtitle;
  std::vector<StackedBar> bars;  // one a dictionary
};

// A panel for each GPU with bytes, or for each device if no GPU has any. `name` is part of the
// titles and may be empty. `unit` as in FigureLook.
std::vector<BarPanel> BarPanels(const query::KeywordReport& report,
                                const tables::Recording& recording,
                                const std::string& name,
                                const std::string& unit = "");

// What has no larger share of its bar than that becomes one slice, kSmaller.
void OmitBelow(double share, std::vector<BarPanel>* panels);

// Stacked bars beside each other, a panel a device.
Figure TwoBarFigure(const FigureLook& look, const std::vector<BarPanel>& panels);
// A bar a category, in a grid of one panel for each bar of the panels.
Figure CategoryFigure(const FigureLook& look, const std::vector<BarPanel>& panels);

// A bar for each GPU with bytes, or for each device if no GPU has any. The rows of `report` are by
// one dimension.
std::vector<StackedBar> PeakBars(const query::Report& report, const std::string& name);
// Bars of several recordings beside each other, with one key: in each bar the same order from the
// bottom, that of the largest. What has less than `omit_below` of the highest bar is one slice.
Figure CompareFigure(const FigureLook& look,
                     const std::vector<StackedBar>& bars,
                     double omit_below = 0);

// Layers that repeat become one slice: "blocks.[0-11].attn".
void FoldLayers(std::vector<StackedBar>* bars);

struct TimelinePanel {
  std::string title;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  query::Timeline timeline;
  uint64_t baseline_bytes = 0;     // NVML's first figure; 0: there is none
  bool sampled = false;            // NVML's figures are all that is known
  std::optional<int64_t> peak_ns;  // of the device, as in the report
  std::string counted;             // "readings": what its seconds count; "": time
};
std::vector<TimelinePanel> TimelinePanels(std::vector<query::Timeline> timelines,
                                          const tables::Recording& recording,
                                          const std::string& name);

// Bands of layers that repeat become one.
void FoldLayers(std::vector<TimelinePanel>* panels);
// "1" becomes "rank 1": a number says little in a key.
void NameNumbers(const std::string& dimension, std::vector<TimelinePanel>* panels);
void NameNumbers(const std::string& dimension, std::vector<StackedBar>* bars);
// Bands whose highest is below that share of the device's become one, kSmaller.
void OmitBelow(double share, std::vector<TimelinePanel>* panels);

// Buckets of a timeline: one a point, so that equally short spikes look the same.
inline constexpr size_t kTimelinePoints = 520;
// Bands and NVML's line, panels below each other with one scale of time. The key has each band's
// bytes at the highest instant.
Figure TimelineFigure(const FigureLook& look, const std::vector<TimelinePanel>& panels);
// The totals of all panels over one axis of time, each from its own start; `less_baseline`: less
// what was in use before it.
Figure OverlayFigure(const FigureLook& look,
                     const std::vector<TimelinePanel>& panels,
                     bool less_baseline = false);

}  // namespace vramscope::output
