// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "format/memory_words.h"
#include "import/builder.h"

// The names that MXNet, and the tools made for it, give to memory: `in_arg:fc_weight`,
// `optimizer_state:mean:fc_weight`, `net:arg_grad:fc_weight`, `workspace:dot-inl.h+362`.
namespace vramscope::imports {

// The same categories as share/keywords/data-structures.toml.
format::Category CategoryOfTag(std::string_view tag);

// Whether it has a word that only MXNet's names have.
bool IsMxnetTag(std::string_view tag);

// Sets tag, category and parameter from the name.
void NameSite(std::string_view tag, Builder* builder, tables::SiteRow* site);

}  // namespace vramscope::imports
