// SPDX-License-Identifier: Apache-2.0
#include "output/plot/cairo_library.h"

#include <dlfcn.h>

#include <string>

namespace vramscope::output {

util::Result<const Cairo*> Cairo::Load() {
  static Cairo cairo;
  static bool loaded = false;
  if (loaded)
    return &cairo;
  void* const library = dlopen("libcairo.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return util::Status::Error(
        "plots are drawn by libcairo.so.2, which cannot be loaded: install it (Debian: apt-get "
        "install libcairo2)");
  }
#define VRAMSCOPE_CAIRO(name)                                                          \
  cairo.name = reinterpret_cast<decltype(cairo.name)>(dlsym(library, "cairo_" #name)); \
  if (cairo.name == nullptr)                                                           \
    return util::Status::Error("libcairo.so.2 was built without cairo_" #name          \
                               ": install Debian's "                                   \
                               "libcairo2");
#include "output/plot/cairo_functions.def"
  loaded = true;
  return &cairo;
}

}  // namespace vramscope::output
