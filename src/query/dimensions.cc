// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "query/report.h"
#include "util/spelling.h"

namespace vramscope::query {

const char* DimensionName(Dimension dimension) {
  switch (dimension) {
#define VRAMSCOPE_DIMENSION(name, text) \
  case Dimension::k##name:              \
    return text;
#include "query/dimensions.def"
  }
  return "";
}

util::Result<Dimension> ParseDimension(const std::string& name) {
#define VRAMSCOPE_DIMENSION(dimension, text) \
  if (name == text)                          \
    return Dimension::k##dimension;
#include "query/dimensions.def"
  if (name == "layer")
    return Dimension::kModule;
  std::vector<std::string> names = {
#define VRAMSCOPE_DIMENSION(dimension, text) text,
#include "query/dimensions.def"
  };
  if (const std::string closest = util::ClosestName(name, names); !closest.empty()) {
    return util::Status::Error("unknown dimension '" + name + "'; did you mean '" + closest + "'?");
  }
  std::string all;
  for (const std::string& known : names)
    all += (all.empty() ? "" : ", ") + known;
  return util::Status::Error("unknown dimension '" + name + "'; use one of: " + all);
}

}  // namespace vramscope::query
