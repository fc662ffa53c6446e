// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "cli/commands.h"
#include "pipeline/open_recording.h"
#include "query/keywords/keyword_file.h"
#include "util/status.h"

namespace vramscope::cli {
namespace {

struct KeywordsArguments {
  std::string action;
  std::string name;
};

util::Status Keywords(const KeywordsArguments& arguments) {
  if (arguments.action == "list" && arguments.name.empty()) {
    return PrintOut(fmt::format("{}\n", fmt::join(query::BuiltInKeywordList(), "\n")));
  }
  if (arguments.action != "show" || arguments.name.empty()) {
    return util::Status::Error(
        "use `keywords list` or `keywords show NAME`: see `vramscope keywords --help`");
  }
  const std::string_view text = query::BuiltInKeywords(arguments.name);
  if (text.empty()) {
    return util::Status::Error(fmt::format("no dictionary is named '{}': use one of {}",
                                           arguments.name, query::BuiltInKeywordNames()));
  }
  return PrintOut(text);
}

}  // namespace

void RegisterKeywords(CLI::App& app, int* exit_code) {
  CLI::App* const command =
      app.add_subcommand("keywords", "List the dictionaries for `report --keywords`");
  auto arguments = std::make_shared<KeywordsArguments>();
  command
      ->add_option("ACTION", arguments->action, "list: print the names; show: print one dictionary")
      ->required();
  command->add_option("NAME", arguments->name, "The dictionary to show");
  command->footer(
      "To write your own, start from one of them:\n"
      "  vramscope keywords show layers > mine.toml\n"
      "  vramscope report FILE --keywords mine.toml");
  command->callback([arguments, exit_code] { *exit_code = ExitOf(Keywords(*arguments)); });
}

}  // namespace vramscope::cli
