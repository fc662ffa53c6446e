// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/options.h"
#include "output/text/text.h"
#include "pipeline/open_recording.h"

namespace vramscope::cli {
namespace {

int ShowInfo(const std::string& path) {
  util::Result<std::unique_ptr<tables::Recording>> recording = OpenRecording(path);
  if (!recording.ok())
    return Fail(recording.status().message());
  util::Result<query::Report> report = query::MakeReport(**recording, {});
  if (!report.ok())
    return Fail(report.status().message());
  return ExitOf(
      PrintOut(output::FormatInfo(*report, **recording, output::DetectStyle(STDOUT_FILENO))));
}

}  // namespace

void RegisterInfo(CLI::App& app, int* exit_code) {
  CLI::App* const info =
      app.add_subcommand("info", "Show what was recorded, how, and what is missing");
  auto path = std::make_shared<std::string>();
  info->add_option("FILE", *path, kRecordingHelp)->required();
  info->callback([path, exit_code] { *exit_code = ShowInfo(*path); });
}

}  // namespace vramscope::cli
