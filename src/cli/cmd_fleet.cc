// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "record/environment.h"

namespace vramscope::cli {
namespace {}  // namespace

int RunPackage(std::vector<std::string> words) {
  if (std::string folder = FindPackage(); !folder.empty()) {
    folder.resize(folder.rfind('/'));
    const char* const path = getenv("PYTHONPATH");
    const std::string value = path == nullptr || *path == '\0' ? folder : folder + ":" + path;
    setenv("PYTHONPATH", value.c_str(), 1);
  }
  // The script `vramscope` names its own interpreter, which has the package's libraries.
  const char* const chosen = getenv("VRAMSCOPE_PYTHON");
  const std::string python = chosen == nullptr ? "python3" : chosen;
  words.insert(words.begin(), {python, "-m", "vramscope.fleet"});
  std::vector<char*> arguments;
  for (std::string& word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(python.c_str(), arguments.data());
  return Fail(fmt::format("{}: cannot start Python 3: {}", python, std::strerror(errno)));
}

void RegisterFleet(CLI::App& app, int* exit_code) {
  CLI::App* const command =
      app.add_subcommand("fleet", "Compare many ranks: outliers, growth, failures, settings");
  // The package parses the options, and prints their help.
  command->set_help_flag();
  command->prefix_command();
  command->callback([command, exit_code] {
    std::vector<std::string> words = command->remaining();
    words.insert(words.begin(), "fleet");
    *exit_code = RunPackage(std::move(words));
  });
}

}  // namespace vramscope::cli
