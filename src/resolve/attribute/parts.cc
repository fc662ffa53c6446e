// SPDX-License-Identifier: Apache-2.0
#include "resolve/attribute/parts.h"

namespace vramscope::resolve {

Category ParseCategory(std::string_view name) {
  for (const Category category : format::kAllCategories) {
    if (name == CategoryName(category))
      return category;
  }
  return Category::kUnknown;
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
    case format::ImplicitKind::kManaged:
      return Part::kUvmDriver;
    case format::ImplicitKind::kEvent:
    case format::ImplicitKind::kPeer:
    case format::ImplicitKind::kOther:
      break;
  }
  return Part::kOtherDriver;
}

}  // namespace vramscope::resolve
