// SPDX-License-Identifier: Apache-2.0
#include "engine/query/report.h"

namespace vramscope::engine {

const char* DimensionName(Dimension dimension) {
  switch (dimension) {
#define VRAMSCOPE_DIMENSION(name, text) \
  case Dimension::k##name:              \
    return text;
#include "engine/query/dimensions.def"
  }
  return "";
}

util::Result<Dimension> ParseDimension(const std::string& name) {
#define VRAMSCOPE_DIMENSION(dimension, text) \
  if (name == text)                          \
    return Dimension::k##dimension;
#include "engine/query/dimensions.def"
  std::string names;
#define VRAMSCOPE_DIMENSION(dimension, text) \
  names += names.empty() ? "" : ", ";        \
  names += text;
#include "engine/query/dimensions.def"
  return util::Status::Error("unknown dimension '" + name + "'; use one of: " + names);
}

}  // namespace vramscope::engine
