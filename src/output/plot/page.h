// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "output/plot/canvas.h"

// What all figures have in common.
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

}  // namespace vramscope::output
