// SPDX-License-Identifier: Apache-2.0
#include "output/plot/page.h"

namespace vramscope::output {

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
