// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "pipeline/open_recording.h"
#include "util/text.h"

namespace vramscope::cli {
namespace {

// The words after the first `--` of `run` and `sample` are the command. They are cut off before any
// option is parsed, since they may contain `--` and names of our options.
std::vector<std::string> TakeCommand(std::vector<std::string>* words) {
  if (words->empty() || (words->front() != "run" && words->front() != "sample"))
    return {};
  const auto dashes = std::find(words->begin(), words->end(), "--");
  if (dashes == words->end())
    return {};
  std::vector<std::string> command(dashes + 1, words->end());
  words->erase(dashes, words->end());
  return command;
}

// The subcommands of `app`, or its options with their dashes.
std::vector<std::string> SubcommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames())
      names.push_back("--" + name);
    for (const std::string& name : option->get_snames())
      names.push_back("-" + name);
  }
  return names;
}

std::string UnknownWord(const CLI::App& app, const std::string& word) {
  const CLI::App* command = &app;
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (!chosen.empty())
    command = chosen.front();
  const std::string help =
      chosen.empty() ? "vramscope --help" : fmt::format("vramscope {} --help", command->get_name());
  if (word.starts_with("-")) {
    const std::string name = word.substr(0, word.find('='));
    const std::string close = util::ClosestName(name, OptionNames(*command));
    if (!close.empty())
      return fmt::format("unknown option {}: did you mean {}?", name, close);
    return fmt::format("unknown option {}: `{}` lists the options", name, help);
  }
  if (chosen.empty()) {
    const std::string close = util::ClosestName(word, SubcommandNames(app));
    if (!close.empty())
      return fmt::format("unknown command '{}': did you mean {}?", word, close);
    return fmt::format("unknown command '{}': `{}` lists the commands", word, help);
  }
  return fmt::format("unexpected argument '{}': see `{}`", word, help);
}

// Beside the program where it is installed; above its build directory in the source tree.
std::string IncludeDirectory() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path prefix = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  for (const fs::path& directory : {prefix / "include", prefix.parent_path() / "include"}) {
    if (fs::is_regular_file(directory / "vramscope" / "annotate.h", error))
      return directory.string();
  }
  throw CLI::ValidationError(
      fmt::format("the headers are not in {}: build or install vramscope again",
                  (prefix / "include").string()));
}

// The option whose name begins a message of CLI11, or null.
const CLI::Option* NamedOption(const CLI::App& command, const std::string& message) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (message.starts_with(name + ":") || message.starts_with(name + " "))
      return option;
  }
  return nullptr;
}

// The message of a ConversionError ends with " NAME = VALUE".
std::string WrongValue(const CLI::App& command, const std::string& message) {
  const size_t equals = message.rfind(" = ");
  const size_t space = message.rfind(' ', equals == message.npos ? equals : equals - 1);
  if (equals == message.npos || space == message.npos)
    return message;
  const std::string name = message.substr(space + 1, equals - space - 1);
  const CLI::Option* const option = command.get_option_no_throw(name);
  if (option != nullptr && option->get_items_expected_max() == 0)
    return name + " takes no value";
  return fmt::format("{}: '{}' is not a whole number", name, message.substr(equals + 3));
}

// The value as --help shows it, without " (required)".
std::string ValueName(const CLI::Option& option) {
  const std::string& text = option.get_option_text();
  return text.substr(0, text.find(' '));
}

// CLI11's messages in plain words: what is wrong with which option.
std::string PlainMessage(const CLI::App& command, const CLI::ParseError& error) {
  const std::string message = error.what();
  const CLI::Option* const option = NamedOption(command, message);
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr)
    return WrongValue(command, message);
  if (option == nullptr)
    return message;
  const std::string name = option->get_name();
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    return name + " is missing";
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    if (message.ends_with(" missing"))
      return fmt::format("{} needs a value ({})", name, ValueName(*option));
    return name + " is given more than once";
  }
  const std::string other = message.substr(message.rfind(' ') + 1);
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr)
    return fmt::format("{} and {} cannot be used together", name, other);
  if (dynamic_cast<const CLI::RequiresError*>(&error) != nullptr)
    return fmt::format("{} can only be used with {}", name, other);
  return message;
}

int ParseFailure(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = app.remaining(true);
  if (!unknown.empty())
    return Fail(UnknownWord(app, unknown.front()));
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr &&
      app.get_subcommands().empty()) {
    return Fail(error.what());
  }
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (chosen.empty())
    return Fail("no command given: `vramscope --help` lists the commands");
  return Fail(fmt::format("{}: see `vramscope {} --help`", PlainMessage(*chosen[0], error),
                          chosen[0]->get_name()));
}

}  // namespace

int Main(std::vector<std::string> words) {
  int exit_code = kExitOk;
  std::vector<std::string> command = TakeCommand(&words);
  CLI::App app("Shows where GPU memory goes: every byte, by name, at any instant.", "vramscope");
  app.set_help_flag("-h,--help", "Print this help");
  app.set_version_flag("--version", "vramscope " VRAMSCOPE_VERSION, "Print the version");
  app.add_flag_callback(
      "--include-dir", [] { throw CLI::CallForVersion(IncludeDirectory(), 0); },
      "Print the directory of vramscope/annotate.h for the compiler's -I");
  app.require_subcommand(1);
  const auto formatter = std::make_shared<HelpFormatter>();
  formatter->label("Positionals", "Arguments");
  formatter->label("SUBCOMMAND", "COMMAND");
  app.formatter(formatter);
  RegisterRun(app, &exit_code, command);
  RegisterSample(app, &exit_code, std::move(command));
  RegisterReport(app, &exit_code);
  RegisterOpen(app, &exit_code);
  RegisterIterations(app, &exit_code);
  RegisterLeaks(app, &exit_code);
  RegisterWhatIf(app, &exit_code);
  RegisterDiff(app, &exit_code);
  RegisterPredict(app, &exit_code);
  RegisterPlot(app, &exit_code);
  RegisterKeywords(app, &exit_code);
  RegisterInfo(app, &exit_code);
  RegisterExport(app, &exit_code);
  RegisterFleet(app, &exit_code);
  RegisterMetrics(app, &exit_code);
  RegisterTop(app, &exit_code);
  RegisterImport(app, &exit_code);
  RegisterFinish(app, &exit_code);
  RegisterSnapshot(app, &exit_code);
  RegisterEnv(app, &exit_code);
  RegisterYield(app, &exit_code);
  RegisterResume(app, &exit_code);
  RegisterResolve(app, &exit_code);
  RegisterSidecar(app, &exit_code);
  RegisterCompact(app, &exit_code);
  RegisterRefused(app, &exit_code);
  RegisterAttach(app, &exit_code);
  RegisterDetach(app, &exit_code);
  RegisterDump(app, &exit_code);
  RegisterDoctor(app, &exit_code);
  // Set before, it would be the commands' too.
  app.footer(
      "Start with `vramscope run -- python train.py`.\n"
      "`vramscope COMMAND --help` explains a command.");
  try {
    std::reverse(words.begin(), words.end());  // CLI11 takes them off the end
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    const std::vector<CLI::App*> chosen = app.get_subcommands();
    fmt::print("{}", chosen.empty() ? app.help() : chosen.front()->help("vramscope"));
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{}\n", version.what());
  } catch (const CLI::ParseError& error) {
    return ParseFailure(app, error);
  }
  return exit_code;
}

}  // namespace vramscope::cli
