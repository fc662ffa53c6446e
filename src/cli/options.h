// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "query/keywords/keywords.h"
#include "util/status.h"

// What several commands read from their options, and what --help prints of them.
namespace vramscope::cli {

// The --help of an argument that is one recording.
inline constexpr const char* kRecordingHelp =
    "A recording: NAME.vram, or NAME.vram.d of a program that still runs or was killed";

// For CLI11, which takes -3 for a very large number: "" if `text` is a whole number from 0 on, or
// the reason why it is not.
std::string CheckCount(const std::string& text);

// A length of time as people type it, in nanoseconds: "1ms", "500us", "0.1 s". Errors name the
// option.
util::Result<int64_t> ParsePeriod(const std::string& option,
                                  const std::string& text,
                                  int64_t shortest_ns,
                                  int64_t longest_ns);

// --keywords and --expected-sum, the same in `report` and `plot`.
struct KeywordOptions {
  std::vector<std::string> dictionaries;
  std::vector<std::string> expected;
};

// `options` outlives the parse.
void AddKeywordOptions(CLI::App& command, KeywordOptions* options);

// The dictionaries and expected sums of a query.
util::Result<query::KeywordQuery> ParseKeywordOptions(const KeywordOptions& options);

// What `--help` prints: an option's name and its text beside it, in lines that fit on a screen.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app,
                        std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode mode) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
};

}  // namespace vramscope::cli
