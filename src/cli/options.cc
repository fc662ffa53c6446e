// SPDX-License-Identifier: Apache-2.0
#include "cli/options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <system_error>
#include <utility>

#include "query/keywords/keyword_file.h"
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
    return util::Status::Error(fmt::format("--expected-sum {}: use a size below 1 EiB", text));
  }
  sum.bytes = *bytes;
  return sum;
}

}  // namespace

std::string CheckCount(const std::string& text) {
  return util::WholeNumber<uint64_t>(text) ? "" : fmt::format("'{}' is not a whole number", text);
}

util::Result<int64_t> ParsePeriod(const std::string& option,
                                  const std::string& text,
                                  int64_t shortest_ns,
                                  int64_t longest_ns) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const std::string unit = text.substr(
      std::min(text.find_first_not_of(' ', static_cast<size_t>(stop - text.data())), text.size()));
  const double unit_ns = unit == "us" ? 1e3 : unit == "ms" ? 1e6 : unit == "s" ? 1e9 : 0;
  if (error != std::errc() || unit_ns == 0)
    return util::Status::Error(
        fmt::format("{} {}: use a number with us, ms or s, as in 10ms", option, text));
  const double period_ns = number * unit_ns;
  if (!(period_ns >= static_cast<double>(shortest_ns) &&
        period_ns <= static_cast<double>(longest_ns)))
    return util::Status::Error(fmt::format("{} {}: use a time from {}us to {}s", option, text,
                                           shortest_ns / 1000, longest_ns / 1'000'000'000));
  return static_cast<int64_t>(period_ns);
}

void AddKeywordOptions(CLI::App& command, KeywordOptions* options) {
  command
      .add_option("--keywords", options->dictionaries,
                  "Group by the categories of a dictionary: " + query::BuiltInKeywordNames() +
                      " or your own FILE.toml (docs/KEYWORDS.md); can be repeated")
      ->option_text("NAME|FILE.toml")
      ->allow_extra_args(false);
  command
      .add_option("--expected-sum", options->expected,
                  "With --keywords: use SIZE as the total of the device instead of NVML's figure")
      ->option_text("[DEVICE=]SIZE")
      ->allow_extra_args(false);
}

util::Result<query::KeywordQuery> ParseKeywordOptions(const KeywordOptions& options) {
  query::KeywordQuery query;
  util::Result<std::vector<query::KeywordDictionary>> dictionaries =
      query::LoadKeywords(options.dictionaries);
  if (!dictionaries.ok())
    return dictionaries.status();
  query.dictionaries = std::move(*dictionaries);
  for (const std::string& text : options.expected) {
    VRAMSCOPE_ASSIGN_OR_RETURN(query::ExpectedSum sum, ParseExpectedSum(text));
    query.expected.push_back(std::move(sum));
  }
  return query;
}

}  // namespace vramscope::cli
