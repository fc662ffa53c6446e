// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "query/dimensions/report.h"
#include "util/text.h"

namespace vramscope::query {

namespace {

// What people call modules; the dimension's own name is in the contract.
constexpr char kLayer[] = "layer";

}  // namespace

const char* DimensionName(Dimension dimension) {
  switch (dimension) {
#define VRAMSCOPE_DIMENSION(name, text) \
  case Dimension::k##name:              \
    return text;
#include "query/dimensions/dimensions.def"
  }
  return "";
}

util::Result<Dimension> ParseDimension(const std::string& name) {
#define VRAMSCOPE_DIMENSION(dimension, text) \
  if (name == text)                          \
    return Dimension::k##dimension;
#include "query/dimensions/dimensions.def"
  if (name == kLayer)
    return Dimension::kModule;
  std::vector<std::string> names = {
#define VRAMSCOPE_DIMENSION(dimension, text) text,
#include "query/dimensions/dimensions.def"
  };
  std::vector<std::string> candidates = names;
  candidates.emplace_back(kLayer);
  if (const std::string closest = util::ClosestName(name, candidates); !closest.empty()) {
    return util::Status::Error("unknown dimension '" + name + "'; did you mean '" + closest + "'?");
  }
  std::string all;
  for (const std::string& known : names)
    all += (all.empty() ? "" : ", ") + known;
  return util::Status::Error("unknown dimension '" + name + "'; use one of: " + all);
}

util::Status AddDimension(const std::string& name, std::vector<Dimension>* dimensions) {
  const util::Result<Dimension> dimension = ParseDimension(name);
  if (!dimension)
    return dimension.status();
  if (std::find(dimensions->begin(), dimensions->end(), *dimension) != dimensions->end()) {
    return util::Status::Error("the dimension '" + name + "' stands there twice: name each once");
  }
  dimensions->push_back(*dimension);
  return {};
}

bool ReportQuery::SelectsWholeDevices() const {
  return std::all_of(where.begin(), where.end(), [](const Where& condition) {
    return condition.dimension == Dimension::kDevice;
  });
}

util::Result<ReportQuery::Where> ParseWhere(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    return util::Status::Error("the condition '" + text +
                               "' has no '=': write DIM=VALUE, such as category=activation");
  }
  const util::Result<Dimension> dimension = ParseDimension(text.substr(0, equals));
  if (!dimension)
    return dimension.status();
  return ReportQuery::Where{*dimension, text.substr(equals + 1)};
}

}  // namespace vramscope::query
