// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "format/enums.h"
#include "format/memory_words.h"

namespace vramscope::resolve {

using format::Category;
using format::CategoryName;
using format::Part;
using format::PartCategory;
using format::PartName;

// The category of that name, or kUnknown.
Category ParseCategory(std::string_view name);
// Of the driver-owned parts, the one that a call of this kind fills.
Part PartOf(format::ImplicitKind kind);

}  // namespace vramscope::resolve
