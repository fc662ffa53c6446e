// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/options.h"

namespace vramscope::cli {
namespace {

constexpr size_t kScreenColumns = 80;
constexpr size_t kOptionColumns = 30;
constexpr size_t kCommandColumns = 14;

// The commands of --help, by the question that they answer.
struct CommandGroup {
  std::string_view question;
  std::vector<std::string_view> commands;
};

const std::vector<CommandGroup>& CommandGroups() {
  static const std::vector<CommandGroup> groups = {
      {"Record a program", {"run", "sample", "env", "snapshot", "finish"}},
      {"Look into a process that already runs", {"attach", "detach", "dump"}},
      {"What holds the memory?", {"report", "open", "plot", "keywords"}},
      {"Does it grow? What changed?", {"iterations", "leaks", "diff"}},
      {"Will a larger batch fit? Another card?", {"predict", "whatif"}},
      {"Which of many ranks is different?", {"fleet"}},
      {"Watch running programs", {"top", "metrics"}},
      {"Is the recording complete? What works here?", {"info", "doctor"}},
      {"Work with other tools", {"import", "export"}},
      {"Lend the GPU to another program", {"yield", "resume"}},
  };
  return groups;
}

// Adds a line of `text`, broken at spaces. Further lines begin with `indent`.
void AddWrapped(std::string_view text, size_t columns, std::string_view indent, std::string* out) {
  while (text.size() > columns) {
    const size_t space = text.rfind(' ', columns);
    if (space == text.npos || space == 0)
      break;
    out->append(text.substr(0, space)).append(indent);
    text.remove_prefix(space + 1);
  }
  out->append(text);
}

// A name and, beside it, its text in lines that fit.
std::string Entry(const std::string& name, std::string_view text, size_t name_columns) {
  std::string out = "  " + name;
  // A long name has a line of its own.
  const std::string indent = "\n" + std::string(name_columns, ' ');
  if (out.size() < name_columns)
    out.append(name_columns - out.size(), ' ');
  else
    out += indent;
  const size_t text_columns = kScreenColumns - name_columns;
  for (size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    AddWrapped(text.substr(0, end), text_columns, indent, &out);
    out += indent;
    text.remove_prefix(end + 1);
  }
  AddWrapped(text, text_columns, indent, &out);
  return out.append("\n");
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

std::string HelpFormatter::make_subcommands(const CLI::App* app, CLI::AppFormatMode) const {
  std::string text;
  if (app->get_subcommands([](const CLI::App*) { return true; }).empty())
    return text;
  for (const CommandGroup& group : CommandGroups()) {
    const bool asks = group.question.ends_with("?");
    text += fmt::format("{}{}{}\n", text.empty() ? "\n" : "", group.question, asks ? "" : ":");
    for (const std::string_view name : group.commands) {
      const CLI::App* const command = app->get_subcommand(std::string(name));
      text += Entry(command->get_name(), command->get_description(), kCommandColumns);
    }
  }
  return text;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string name = make_option_name(option, is_positional);
  const std::string& value = option->get_option_text();
  // CLI11 adds the value of a flag without a value to its name: "--oom{0}".
  if (const size_t brace = name.find('{'); brace != name.npos) {
    name.erase(brace, name.find('}', brace) + 1 - brace);
    name += value.empty() ? "" : "[=" + value + "]";
  } else if (!value.empty()) {
    name += " " + value;
  }
  return Entry(name, option->get_description(), kOptionColumns);
}

}  // namespace vramscope::cli
