// SPDX-License-Identifier: Apache-2.0
#include "cli/keyword_options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <utility>

#include "cli/keyword_file.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

// Far above any machine, and far from where sums of bytes leave their type.
constexpr uint64_t kLargestSum = 1ull << 60;

util::Result<query::ExpectedSum> ParseExpectedSum(const std::string& text) {
  query::ExpectedSum sum;
  const size_t equals = text.find('=');
  if (equals != std::string::npos)
    sum.device = text.substr(0, equals);
  const util::Result<uint64_t> bytes =
      util::ParseSize(equals == std::string::npos ? text : text.substr(equals + 1));
  if (!bytes.ok())
    return util::Status::Error("--expected-sum: " + bytes.status().message());
  if (*bytes > kLargestSum) {
    return util::Status::Error(
        fmt::format("--expected-sum {}: no machine has so much memory", text));
  }
  sum.bytes = *bytes;
  return sum;
}

}  // namespace

void AddKeywordOptions(CLI::App& command, KeywordOptions* options) {
  command
      .add_option("--keywords", options->dictionaries,
                  "Sort into the categories of a dictionary: " + BuiltInKeywordNames() +
                      ", or a file (docs/KEYWORDS.md); can be repeated")
      ->option_text("NAME|FILE.toml")
      ->allow_extra_args(false);
  command
      .add_option("--expected-sum", options->expected,
                  "What there should be in all, instead of NVML's figure; the rest is Untrackable")
      ->option_text("[DEVICE=]SIZE")
      ->allow_extra_args(false);
}

util::Result<query::KeywordQuery> ParseKeywordOptions(const KeywordOptions& options) {
  query::KeywordQuery query;
  util::Result<std::vector<query::KeywordDictionary>> dictionaries =
      LoadKeywords(options.dictionaries);
  if (!dictionaries.ok())
    return dictionaries.status();
  query.dictionaries = std::move(*dictionaries);
  for (const std::string& text : options.expected) {
    util::Result<query::ExpectedSum> sum = ParseExpectedSum(text);
    if (!sum.ok())
      return sum.status();
    query.expected.push_back(std::move(*sum));
  }
  return query;
}

}  // namespace vramscope::cli
