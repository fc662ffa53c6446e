// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "output/terminal.h"
#include "pipeline/oom_reports.h"
#include "pipeline/open_recording.h"

// What `run` starts when memory was refused to the program: reads the recording in a process of its
// own, which the program's end or a lack of memory ends without harm to the recording.
namespace vramscope::cli {
namespace {

constexpr int kReportNice = 10;

struct RefusedArguments {
  std::string live_directory;
  std::string output;
  size_t told = 0;
};

util::Status TellOfRefusals(const RefusedArguments& arguments) {
  [[maybe_unused]] const int niceness = nice(kReportNice);
  util::Result<std::unique_ptr<tables::Recording>> recording =
      OpenRecording(arguments.live_directory);
  if (!recording)
    return recording.status();
  const OutOfMemoryReports saved = SaveOutOfMemoryReports(
      **recording, arguments.output, output::DetectStyle(STDERR_FILENO), arguments.told);
  std::string text = fmt::format("{}\n", saved.refusals);
  for (const std::string& line : saved.lines)
    text += fmt::format("vramscope: {}\n", line);
  return PrintOut(text);
}

}  // namespace

void RegisterRefused(CLI::App& app, int* exit_code) {
  CLI::App* const refused = app.add_subcommand("refused", "")->group("");
  auto arguments = std::make_shared<RefusedArguments>();
  refused->add_option("DIR", arguments->live_directory)->required();
  refused->add_option("FILE", arguments->output)->required();
  refused->add_option("TOLD", arguments->told)->required();
  refused->callback([arguments, exit_code] { *exit_code = ExitOf(TellOfRefusals(*arguments)); });
}

}  // namespace vramscope::cli
