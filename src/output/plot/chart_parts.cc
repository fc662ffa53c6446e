// SPDX-License-Identifier: Apache-2.0
#include "output/plot/chart_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "util/size_text.h"

namespace vramscope::output {
namespace {

constexpr double kTicks = 5;  // approximately

double NiceStep(double largest) {
  const double raw = largest / kTicks;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (raw <= factor * power * (1 + 1e-9))
      return factor * power;
  }
  return 10 * power;
}

// Ticks of values in `unit`s, up to `largest`.
void AddTicks(double largest, double unit, double step, Axis* axis) {
  for (int i = 0; i * step <= largest * (1 + 1e-9); ++i)
    axis->ticks.push_back({i * step * unit, fmt::format("{:.10g}", i * step)});
}

}  // namespace

double UnitBytes(const std::string& unit) {
  struct Known {
    const char* name;
    double bytes;
  };
  constexpr Known kUnits[] = {{"B", 1},        {"KiB", 0x1p10}, {"MiB", 0x1p20},
                              {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"kB", 1e3},
                              {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  for (const Known& known : kUnits) {
    if (unit == known.name)
      return known.bytes;
  }
  return 0;
}

std::string BytesIn(uint64_t bytes, const std::string& unit) {
  const double unit_bytes = UnitBytes(unit);
  if (unit_bytes == 0)
    return util::FormatBytes(bytes);
  const double value = static_cast<double>(bytes) / unit_bytes;
  const int digits = unit_bytes == 1 || value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3;
  const std::string text = fmt::format("{:.{}f}", value, digits);
  return fmt::format("{} {}", bytes > 0 && text == "0.000" ? "<0.001" : text, unit);
}

Axis ByteAxis(double largest_bytes, const std::string& unit) {
  Axis axis;
  axis.unit = unit;
  axis.unit_fixed = !unit.empty();
  for (const char* const suitable : {"B", "KiB", "MiB", "GiB", "TiB"}) {
    if (unit.empty() && (axis.unit.empty() || largest_bytes >= UnitBytes(suitable)))
      axis.unit = suitable;
  }
  const double unit_bytes = UnitBytes(axis.unit);
  const double largest = std::max(largest_bytes / unit_bytes, axis.unit == "B" ? 5.0 : 1e-3);
  const double step = NiceStep(largest);
  const double end = std::ceil(largest / step - 1e-9) * step;
  AddTicks(end, unit_bytes, step, &axis);
  axis.end = end * unit_bytes;
  return axis;
}

Axis TimeAxis(double largest_seconds, const std::string& counted) {
  struct TimeUnit {
    double seconds;
    const char* name;
  };
  constexpr TimeUnit kUnits[] = {{1e-6, "us"}, {1e-3, "ms"}, {1, "s"}, {60, "min"}, {3600, "h"}};
  Axis axis;
  axis.end = std::max(largest_seconds, 1e-6);
  if (!counted.empty()) {
    axis.unit = counted;
    axis.counts = true;
    if (counted != kOneInstant)
      AddTicks(axis.end, 1, std::max(1.0, NiceStep(axis.end)), &axis);
    return axis;
  }
  TimeUnit unit = kUnits[0];
  for (const TimeUnit& candidate : kUnits) {
    // Three minutes read better than 180 seconds; one and a half, as 90 seconds.
    if (axis.end >= candidate.seconds * (candidate.seconds >= 60 ? 3 : 1))
      unit = candidate;
  }
  axis.unit = unit.name;
  AddTicks(axis.end / unit.seconds, unit.seconds, NiceStep(axis.end / unit.seconds), &axis);
  return axis;
}

// Less i * gap, places have only to ascend: the nearest such ones are the means of blocks, which
// are joined until they do (isotonic regression).
std::vector<double> SpreadLabels(const std::vector<double>& wanted,
                                 double gap,
                                 double low,
                                 double high) {
  if (wanted.empty())
    return {};
  const size_t count = wanted.size();
  const auto gaps = static_cast<double>(count - 1);
  if (gaps > 0)
    gap = std::min(gap, (high - low) / gaps);
  struct Block {
    double sum;
    size_t size;
    double mean() const { return sum / static_cast<double>(size); }
  };
  std::vector<Block> blocks;
  for (size_t i = 0; i < count; ++i) {
    blocks.push_back({wanted[i] - static_cast<double>(i) * gap, 1});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].mean() > blocks.back().mean()) {
      const Block last = blocks.back();
      blocks.pop_back();
      blocks.back().sum += last.sum;
      blocks.back().size += last.size;
    }
  }
  std::vector<double> placed;
  for (const Block& block : blocks) {
    for (size_t i = 0; i < block.size; ++i) {
      const double offset = static_cast<double>(placed.size()) * gap;
      placed.push_back(std::clamp(block.mean(), low, std::max(low, high - gaps * gap)) + offset);
    }
  }
  return placed;
}

double TitleSpace(const std::string& title) {
  return title.empty() ? 0 : 24;
}

void DrawTitle(Canvas& canvas, const std::string& title, double page_width) {
  if (title.empty())
    return;
  constexpr Lettering kTitle{.size = 14, .bold = true, .align = Align::kCentre};
  canvas.Text({page_width / 2, kPageMargin + 12},
              FitText(canvas, title, page_width - 2 * kPageMargin, kTitle), kTitle);
}

}  // namespace vramscope::output
