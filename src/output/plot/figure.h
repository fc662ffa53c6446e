// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "output/plot/canvas.h"
#include "query/keywords.h"
#include "query/report.h"
#include "tables/recording.h"

// The figures of `vramscope plot`. Each knows its size and draws itself, the same on every canvas.
namespace vramscope::output {

struct Figure {
  Size size;
  std::function<void(Canvas&)> draw;
};

util::Result<std::string> RenderFigure(const Figure& figure, ImageFormat format);

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
  uint64_t whole_bytes = 0;   // what shares are of: the expected sum, else the rows
};
struct BarPanel {
  std::string title;
  std::string subtitle;
  std::vector<StackedBar> bars;  // one a dictionary
};

// A panel for each GPU of the recording that has bytes; where none has, for each device.
// `name` stands in the titles; may be empty.
std::vector<BarPanel> BarPanels(const query::KeywordReport& report,
                                const tables::Recording& recording,
                                const std::string& name);

// Stacked bars beside each other, a panel a device.
Figure TwoBarFigure(const std::string& title, const std::vector<BarPanel>& panels);
// A bar a category, in a grid of one panel for each bar of the panels.
Figure CategoryFigure(const std::string& title, const std::vector<BarPanel>& panels);

struct TimelinePanel {
  std::string title;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  query::Timeline timeline;
};
std::vector<TimelinePanel> TimelinePanels(std::vector<query::Timeline> timelines,
                                          const tables::Recording& recording,
                                          const std::string& name);

// Bands by category and NVML's line, panels below each other with one scale of time.
Figure TimelineFigure(const std::string& title, const std::vector<TimelinePanel>& panels);
// The totals of all panels over one axis of time, each from its own start.
Figure CompareFigure(const std::string& title, const std::vector<TimelinePanel>& panels);

}  // namespace vramscope::output
