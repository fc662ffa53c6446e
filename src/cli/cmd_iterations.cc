// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "output/answers.h"
#include "output/names.h"
#include "output/terminal.h"
#include "pipeline/open_recording.h"

namespace vramscope::cli {
namespace {

constexpr size_t kScreenRows = 10;
constexpr int kPipeColumns = 100;  // room for what a training has

struct IterationsArguments {
  std::string file;
  bool json = false;
  bool csv = false;
  bool last = false;
  bool all = false;
  bool no_native_names = false;
  std::optional<size_t> top;
  std::optional<uint32_t> pid;
  std::optional<int32_t> device;
};

// Of an iteration, or of a parameter.
template <class Row>
bool Wanted(const Row& row,
            const tables::Recording& recording,
            const IterationsArguments& arguments) {
  if (arguments.pid && output::PidOf(recording, row.process) != *arguments.pid)
    return false;
  return !arguments.device || output::DeviceIndex(recording, row.device) == *arguments.device;
}

// Keeps what --pid, --device and --last ask for.
void Select(query::Iterations* iterations,
            const tables::Recording& recording,
            const IterationsArguments& arguments) {
  std::vector<query::Iteration> kept;
  for (query::Iteration& iteration : iterations->iterations) {
    if (!Wanted(iteration, recording, arguments))
      continue;
    const bool same_list = !kept.empty() && kept.back().process == iteration.process &&
                           kept.back().device == iteration.device;
    if (arguments.last && same_list)
      kept.back() = std::move(iteration);
    else
      kept.push_back(std::move(iteration));
  }
  iterations->iterations = std::move(kept);
  std::erase_if(iterations->parameters,
                [&](const auto& parameter) { return !Wanted(parameter, recording, arguments); });
}

util::Status ShowIterations(const IterationsArguments& arguments) {
  VRAMSCOPE_ASSIGN_OR_RETURN(
      std::unique_ptr<tables::Recording> recording,
      OpenRecording(arguments.file, {.native_names = !arguments.no_native_names}));
  util::Result<query::Iterations> iterations = query::MakeIterations(*recording);
  if (!iterations.ok())
    return util::Status::Error(arguments.file + ": " + iterations.status().message());
  Select(&*iterations, *recording, arguments);
  if (iterations->iterations.empty()) {
    return util::Status::Error(fmt::format(
        "{}: has no iteration of that process and device: `vramscope iterations {}` lists all",
        arguments.file, arguments.file));
  }
  if (arguments.json)
    return PrintOut(output::IterationsJson(*iterations, *recording));
  if (arguments.csv)
    return PrintOut(output::IterationsCsv(*iterations, *recording));
  output::IterationsTextOptions options;
  options.style = output::DetectStyle(STDOUT_FILENO);
  const bool piped = isatty(STDOUT_FILENO) == 0;
  if (piped)
    options.style.columns = std::max(options.style.columns, kPipeColumns);
  const size_t rows = arguments.top.value_or(piped ? 0 : kScreenRows);
  options.rows = arguments.all ? 0 : rows;
  options.parameters = arguments.all ? 0 : rows;
  return PrintOut(output::FormatIterations(*iterations, *recording, options));
}

}  // namespace

void RegisterIterations(CLI::App& app, int* exit_code) {
  CLI::App* const command =
      app.add_subcommand("iterations", "Show the peak of each training iteration");
  auto arguments = std::make_shared<IterationsArguments>();
  command->add_option("FILE", arguments->file, kRecordingHelp)->required();
  CLI::Option* const json = command->add_flag(
      "--json", arguments->json, "Print JSON with exact bytes (schema vramscope.iterations/1)");
  command->add_flag("--csv", arguments->csv, "Print the iterations as CSV with exact bytes")
      ->excludes(json);
  command->add_flag("--last", arguments->last,
                    "Show only the last iteration of each process and device");
  command
      ->add_option(
          "--top", arguments->top,
          "Show N iterations and N layers; 0: all (default: 10, in a pipe all). The iteration with "
          "the highest peak is always shown")
      ->check(CheckCount)
      ->option_text("N");
  command->add_flag("--all", arguments->all, "Show all iterations and layers");
  command->add_option("--pid", arguments->pid, "Show only this process")
      ->check(CheckCount)
      ->option_text("PID");
  command->add_option("--device", arguments->device, "Show only this GPU; -1: CPU tensors")
      ->option_text("N");
  command->add_flag("--no-native-names", arguments->no_native_names,
                    "Skip C++ function names of an unfinished recording: faster");
  command->callback([arguments, exit_code] { *exit_code = ExitOf(ShowIterations(*arguments)); });
}

}  // namespace vramscope::cli
