// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <utility>

#include "cli/options.h"

namespace vramscope::cli {
namespace {

constexpr size_t kScreenColumns = 80;
constexpr size_t kNameColumns = 30;

// A name and, beside it, its text in lines that are broken at spaces.
std::string Entry(const std::string& name, std::string_view text) {
  std::string out = "  " + name;
  // A long name stands on a line of its own.
  const std::string indent = "\n" + std::string(kNameColumns, ' ');
  if (out.size() < kNameColumns)
    out.append(kNameColumns - out.size(), ' ');
  else
    out += indent;
  constexpr size_t kTextColumns = kScreenColumns - kNameColumns;
  while (text.size() > kTextColumns) {
    const size_t space = text.rfind(' ', kTextColumns);
    if (space == text.npos || space == 0)
      break;
    out.append(text.substr(0, space)).append(indent);
    text.remove_prefix(space + 1);
  }
  return out.append(text).append("\n");
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* app,
                                     std::string name,
                                     CLI::AppFormatMode mode) const {
  std::string text = Formatter::make_help(app, std::move(name), mode);
  // A hidden group of options, or no footer, leaves an empty line too many.
  for (size_t at = text.find("\n\n\n"); at != text.npos; at = text.find("\n\n\n"))
    text.erase(at, 1);
  while (text.ends_with("\n\n"))
    text.pop_back();
  return text;
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return Entry(command->get_name(), command->get_description());
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string name = make_option_name(option, is_positional);
  const std::string& value = option->get_option_text();
  // The parser writes what a flag without its value stands for into its name: "--oom{0}".
  if (const size_t brace = name.find('{'); brace != name.npos) {
    name.erase(brace, name.find('}', brace) + 1 - brace);
    name += value.empty() ? "" : "[=" + value + "]";
  } else if (!value.empty()) {
    name += " " + value;
  }
  return Entry(name, option->get_description());
}

}  // namespace vramscope::cli
