// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/options.h"
#include "output/export/export.h"
#include "pipeline/open_recording.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

struct ExportArguments {
  std::string file;
  std::string format;
  std::string output;
  std::string at;
};

util::Result<output::ExportFormat> FindFormat(const std::string& name) {
  std::string names;
  for (const output::ExportFormat& format : output::ExportFormats()) {
    if (name == format.name)
      return format;
    names += names.empty() ? format.name : std::string(", ") + format.name;
  }
  return util::Status::Error(
      fmt::format("unknown format '{}' of --to: the formats are {}", name, names));
}

util::Status Export(const ExportArguments& arguments) {
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
    VRAMSCOPE_RETURN_IF_ERROR(CheckNotInput(arguments.output, arguments.file));
  }
  VRAMSCOPE_ASSIGN_OR_RETURN(std::unique_ptr<tables::Recording> recording,
                             OpenRecording(arguments.file));
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
  command->add_option("FILE", arguments->file, kRecordingHelp)->required();
  std::string help;
  for (const output::ExportFormat& format : output::ExportFormats()) {
    help += fmt::format("{}{}: {}", help.empty() ? "" : "\n", format.name, format.help);
  }
  command->add_option("--to", arguments->format, help)->option_text("FORMAT")->required();
  command
      ->add_option("--at", arguments->at,
                   "Export this instant: peak (default), allocated-peak, end, SECONDS, @NS, "
                   "iter:N, mark:NAME (see `vramscope report --help`)")
      ->option_text("WHEN");
  command->add_option("-o", arguments->output, "Write to FILE (default, or -: standard output)")
      ->option_text("FILE");
  command->callback([arguments, exit_code] { *exit_code = ExitOf(Export(*arguments)); });
}

}  // namespace vramscope::cli
