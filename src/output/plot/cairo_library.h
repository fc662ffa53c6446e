// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <cairo.h>

#include "util/status.h"

namespace vramscope::output {

// Cairo's functions with the types of its headers, found in libcairo.so.2 when the first plot is
// drawn: the program starts, and does all else, on machines without it.
struct Cairo {
#define VRAMSCOPE_CAIRO(name) decltype(&::cairo_##name) name = nullptr;
#include "output/plot/cairo_functions.def"

  // The one table of the process; never unloaded.
  static util::Result<const Cairo*> Load();
};

}  // namespace vramscope::output
