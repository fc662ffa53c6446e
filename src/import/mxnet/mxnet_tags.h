// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "format/memory_words.h"
#include "import/builder.h"

// The names that MXNet, and the tools made for it, give to memory: `in_arg:fc_weight`,
// `optimizer_state:mean:fc_weight`, `net:arg_grad:fc_weight`, `workspace:dot-inl.h+362`.
namespace vramscope::imports {

// As share/keywords/data-structures.toml sorts them.
format::Category CategoryOfTag(std::string_view tag);

// Whether it has a word that no other tool's names have.
bool IsMxnetTag(std::string_view tag);

// Sets all that the name says: tag, category, parameter.
void NameSite(std::string_view tag, Builder* builder, tables::SiteRow* site);

}  // namespace vramscope::imports
