// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "format/enums.h"

// The leaves of the ledger below "driver-owned" or an owner.
namespace vramscope::engine {

enum class Part : uint8_t {
#define VRAMSCOPE_PART(Name, text, category) k##Name,
#include "engine/model/parts.def"
};

enum class Category : uint8_t {
#define VRAMSCOPE_CATEGORY(Name, text) k##Name,
#include "engine/model/categories.def"
};
inline constexpr size_t kCategories = static_cast<size_t>(Category::kUnknown) + 1;

const char* PartName(Part part);
Category PartCategory(Part part);
const char* CategoryName(Category category);
// The category of that name, or kUnknown.
Category ParseCategory(std::string_view name);
// Parts that hold nobody's data: free memory of allocators and slack.
bool IsSlack(Part part);
// Parts that make one of two equally high instants the higher one: bytes in the program's hands.
bool IsUse(Part part);
// Of the driver-owned parts, the one that a call of this kind fills.
Part PartOf(format::ImplicitKind kind);

}  // namespace vramscope::engine
