// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "output/plot/canvas.h"

// What all figures have in common: letters and strokes, axes, colours.
namespace vramscope::output {

inline constexpr double kPageMargin = 14;
inline constexpr double kKeyGap = 14;    // between the base lines of a key's entries
inline constexpr double kKeySwatch = 8;  // side of a key's square

inline constexpr Lettering kPanelTitle{.size = 11, .bold = true};
inline constexpr Lettering kTickLabel{.size = 9, .colour = kGrey, .align = Align::kRight};
inline constexpr Lettering kCentredLabel{.size = 9, .colour = kGrey, .align = Align::kCentre};
inline constexpr Lettering kUpwardsLabel{.size = 9,
                                         .colour = kGrey,
                                         .align = Align::kCentre,
                                         .upwards = true};
inline constexpr Lettering kKeyName{.size = 9.5};
inline constexpr Lettering kKeyFigure{.size = 9.5, .colour = kGrey};
inline constexpr Stroke kAxisStroke{.colour = kGrey, .width = 0.8};
inline constexpr Stroke kGridStroke{.colour = kPale, .width = 0.8};

// The height that a figure's title takes, below the margin; none without a title.
double TitleSpace(const std::string& title);
void DrawTitle(Canvas& canvas, const std::string& title, double page_width);

// Bytes for people, in that unit, or for "" in what suits them.
std::string BytesIn(uint64_t bytes, const std::string& unit);

// An axis from 0: its end, and its ticks at multiples of 1, 2, 2.5 or 5 times a power of ten.
struct Axis {
  double end = 1;  // in bytes, or in seconds
  struct Tick {
    double value;
    std::string label;
  };
  std::vector<Tick> ticks;
  std::string unit;         // "GiB", "s"
  bool unit_fixed = false;  // the user chose the unit: figures beside the axis use it, too
  bool counts = false;      // of time: it is none, but a number of what `unit` says

  // Of an axis of bytes: a figure for people, in its unit where that is fixed.
  std::string Bytes(uint64_t bytes) const { return BytesIn(bytes, unit_fixed ? unit : ""); }
};
// Bytes of a unit by its name on an axis: "MiB", "GB", ...; 0 for an unknown name.
double UnitBytes(const std::string& unit);
// Goes at least as far as `largest`; in the unit that suits it, or in that one.
Axis ByteAxis(double largest_bytes, const std::string& unit = "");
// In place of what seconds count, where the data has no time at all: the axis has no ticks.
inline constexpr char kOneInstant[] = "one instant";
// Ends at `largest`. `counted`: what the seconds count in place of time, which is its unit then;
// "": they are seconds.
Axis TimeAxis(double largest_seconds, const std::string& counted = "");

// Places labels, wanted at `wanted` (ascending), at least `gap` apart and between `low` and `high`,
// as near to where they are wanted as that allows. Where there is too little room they get less
// than `gap`.
std::vector<double> SpreadLabels(const std::vector<double>& wanted,
                                 double gap,
                                 double low,
                                 double high);

// The colours of a figure's names: those of the HTML page's categories for names that mean one
// ("Parameters", "parameter"), hues that no category of the figure has for the others.
class Palette {
 public:
  // In the order in which names without a colour of their own are to get one.
  explicit Palette(const std::vector<std::string>& names);
  Colour Of(const std::string& name) const;

 private:
  std::map<std::string, Colour> colours_;
};

// The place of a name in a stack, from the bottom up, in the order of the HTML page's timeline.
// Names without a colour of their own share a rank, below unknown and free bytes.
double StackRank(const std::string& name);

// For lines: the hue of the n-th.
Colour HueOf(size_t index);

// Black or white, whichever can be read on `ground`.
Colour InkOn(Colour ground);

}  // namespace vramscope::output
