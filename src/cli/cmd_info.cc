// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/open_trace.h"
#include "report/away_lines.h"
#include "report/info.h"

namespace vramscope::cli {
namespace {

int ShowInfo(const std::string& path) {
  util::Result<std::unique_ptr<engine::Analysis>> analysis = OpenAnalysis(path);
  if (!analysis.ok())
    return Fail(analysis.status().message());
  util::Result<engine::Report> report = (*analysis)->MakeReport({});
  if (!report.ok())
    return Fail(report.status().message());
  const util::Status status =
      PrintOut(report::FormatInfo(*report, (*analysis)->trace(), report::DetectStyle(STDOUT_FILENO),
                                  report::AwayLines(**analysis)));
  return status.ok() ? kExitOk : Fail(status.message());
}

}  // namespace

void RegisterInfo(CLI::App& app, int* exit_code) {
  CLI::App* const info =
      app.add_subcommand("info", "What was recorded, how, and how far it can be trusted");
  auto path = std::make_shared<std::string>();
  info->add_option("FILE", *path, "NAME.vram, or NAME.vram.d of an unfinished recording")
      ->required();
  info->callback([path, exit_code] { *exit_code = ShowInfo(*path); });
}

}  // namespace vramscope::cli
