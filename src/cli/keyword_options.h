// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "query/keywords.h"
#include "util/status.h"

namespace CLI {
class App;
}

// --keywords and --expected-sum, the same in `report` and `plot`.
namespace vramscope::cli {

struct KeywordOptions {
  std::vector<std::string> dictionaries;
  std::vector<std::string> expected;
};

// `options` outlives the parse.
void AddKeywordOptions(CLI::App& command, KeywordOptions* options);

// The dictionaries and expected sums of a query.
util::Result<query::KeywordQuery> ParseKeywordOptions(const KeywordOptions& options);

}  // namespace vramscope::cli
