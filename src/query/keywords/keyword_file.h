// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "query/keywords/keywords.h"
#include "util/status.h"

// Keyword dictionaries as people write them: TOML, described in docs/KEYWORDS.md.
namespace vramscope::query {

// The dictionaries of `text`, in its order. Errors begin with `name`, the line and the column.
util::Result<std::vector<KeywordDictionary>> ParseKeywords(std::string_view text,
                                                           const std::string& name);

// The dictionaries that --keywords names: each a file, or one of those that come with the program.
// No two may have one name.
util::Result<std::vector<KeywordDictionary>> LoadKeywords(const std::vector<std::string>& names);

// The text of a dictionary of share/keywords that comes with the program, "" where there is none.
std::string_view BuiltInKeywords(std::string_view name);
// Their names, as a list and as a text: "layers, data-structures, tbd".
std::vector<std::string> BuiltInKeywordList();
std::string BuiltInKeywordNames();

}  // namespace vramscope::query
