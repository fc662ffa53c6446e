// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace vramscope::cli {

// What `--help` prints: an option's name and its text beside it, in lines that fit on a screen.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app,
                        std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
};

}  // namespace vramscope::cli
