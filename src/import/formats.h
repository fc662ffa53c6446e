// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "import/import.h"

namespace vramscope::imports {

#define VRAMSCOPE_IMPORT(Function, name, title, takes_period) \
  bool Is##Function(const Input& input);                      \
  util::Status Read##Function(const Input& input, const Options& options, Builder* builder);
#include "import/formats.def"

}  // namespace vramscope::imports
