// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "output/export/export.h"
#include "pipeline/open_recording.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

// Written by the Python package, through Arrow.
constexpr char kParquet[] = "parquet";

struct ExportArguments {
  std::vector<std::string> files;
  std::string run;
  std::string format;
  std::string output;
  std::string at;
  int niceness = 0;
};

util::Result<output::ExportFormat> FindFormat(const std::string& name) {
  std::string names;
  for (const output::ExportFormat& format : output::ExportFormats()) {
    if (name == format.name)
      return format;
    names += format.name + std::string(", ");
  }
  names += kParquet;
  return util::Status::Error(
      fmt::format("unknown format '{}' of --to: the formats are {}", name, names));
}

int ExportDataset(const ExportArguments& arguments) {
  if (arguments.output.empty() || !arguments.at.empty())
    return Fail("--to parquet writes whole recordings into a folder: give -o DIR, and no --at");
  std::vector<std::string> words = {"export", "-o", arguments.output};
  if (!arguments.run.empty())
    words.insert(words.end(), {"--run", arguments.run});
  words.push_back("--");
  words.insert(words.end(), arguments.files.begin(), arguments.files.end());
  return RunPackage(std::move(words));
}

util::Status Export(const ExportArguments& arguments) {
  if (arguments.files.size() > 1 || !arguments.run.empty())
    return util::Status::Error("several FILEs and --run need --to parquet");
  const std::string& file_name = arguments.files.front();
  util::Result<output::ExportFormat> format = FindFormat(arguments.format);
  if (!format.ok())
    return format.status();
  output::ExportOptions options;
  if (!arguments.at.empty() && format->default_at == nullptr)
    return util::Status::Error(
        fmt::format("--at does not apply to '{}', which exports the whole recording: leave it out",
                    format->name));
  if (format->default_at != nullptr) {
    VRAMSCOPE_ASSIGN_OR_RETURN(
        query::Instant at,
        query::ParseInstant(arguments.at.empty() ? format->default_at : arguments.at));
    options.at = at;
  }
  const bool to_stdout = arguments.output.empty() || arguments.output == "-";
  if (!to_stdout) {
    VRAMSCOPE_RETURN_IF_ERROR(CheckNotInput(arguments.output, file_name));
  }
  VRAMSCOPE_ASSIGN_OR_RETURN(std::unique_ptr<tables::Recording> recording,
                             OpenRecording(file_name));
  if (to_stdout)
    return output::WriteExport(*format, *recording, options, PrintOut);
  util::Result<util::AtomicFile> file = util::AtomicFile::Create(arguments.output);
  if (!file.ok())
    return file.status();
  VRAMSCOPE_RETURN_IF_ERROR(output::WriteExport(
      *format, *recording, options, [&file](std::string_view text) { return file->Write(text); }));
  return file->Commit();
}

}  // namespace

void RegisterExport(CLI::App& app, int* exit_code) {
  CLI::App* const command = app.add_subcommand("export", "Write a recording for another tool");
  auto arguments = std::make_shared<ExportArguments>();
  command
      ->add_option(
          "FILE", arguments->files,
          kRecordingHelp + std::string("; for parquet several, or folders with recordings"))
      ->required();
  std::string help;
  for (const output::ExportFormat& format : output::ExportFormats()) {
    help += fmt::format("{}{}: {}", help.empty() ? "" : "\n", format.name, format.help);
  }
  help += "\nparquet: many recordings as a dataset, for `fleet`, SQL and pandas";
  command->add_option("--to", arguments->format, help)->option_text("FORMAT")->required();
  command
      ->add_option("--at", arguments->at,
                   "Export this instant: peak (default), allocated-peak, end, SECONDS, @NS, "
                   "iter:N, mark:NAME (see `vramscope report --help`)")
      ->option_text("WHEN");
  command
      ->add_option("-o", arguments->output,
                   "Write to FILE (default, or -: standard output); for parquet a folder")
      ->option_text("FILE");
  command
      ->add_option("--run", arguments->run,
                   "For parquet: name of the run (default: the recordings')")
      ->option_text("NAME");
  // For the launcher.
  command->add_option("--nice", arguments->niceness)->group("");
  command->callback([arguments, exit_code] {
    [[maybe_unused]] const int now = nice(arguments->niceness);
    *exit_code =
        arguments->format == kParquet ? ExportDataset(*arguments) : ExitOf(Export(*arguments));
  });
}

}  // namespace vramscope::cli
