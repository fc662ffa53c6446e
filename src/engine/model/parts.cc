// SPDX-License-Identifier: Apache-2.0
#include "engine/model/parts.h"

namespace vramscope::engine {

const char* PartName(Part part) {
  switch (part) {
#define VRAMSCOPE_PART(Name, text, category) \
  case Part::k##Name:                        \
    return text;
#include "engine/model/parts.def"
  }
  return "";
}

Category PartCategory(Part part) {
  switch (part) {
#define VRAMSCOPE_PART(Name, text, category) \
  case Part::k##Name:                        \
    return Category::category;
#include "engine/model/parts.def"
  }
  return Category::kUnknown;
}

const char* CategoryName(Category category) {
  switch (category) {
#define VRAMSCOPE_CATEGORY(Name, text) \
  case Category::k##Name:              \
    return text;
#include "engine/model/categories.def"
  }
  return "unknown";
}

Category ParseCategory(std::string_view name) {
#define VRAMSCOPE_CATEGORY(Name, text) \
  if (name == text)                    \
    return Category::k##Name;
#include "engine/model/categories.def"
  return Category::kUnknown;
}

bool IsSlack(Part part) {
  const Category category = PartCategory(part);
  return category == Category::kCached || category == Category::kFragmentation ||
         category == Category::kRounding;
}

bool IsUse(Part part) {
  return part != Part::kUncut && !IsSlack(part);
}

Part PartOf(format::ImplicitKind kind) {
  switch (kind) {
    case format::ImplicitKind::kInit:
    case format::ImplicitKind::kContext:
      return Part::kContext;
    case format::ImplicitKind::kModule:
    case format::ImplicitKind::kFunction:
      return Part::kCode;
    case format::ImplicitKind::kLaunch:
      return Part::kLaunch;
    case format::ImplicitKind::kLimit:
      return Part::kLimits;
    case format::ImplicitKind::kStream:
      return Part::kStreams;
    case format::ImplicitKind::kGraph:
      return Part::kGraphs;
    case format::ImplicitKind::kEvent:
    case format::ImplicitKind::kPeer:
    case format::ImplicitKind::kOther:
      break;
  }
  return Part::kOtherDriver;
}

}  // namespace vramscope::engine
