// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "import/import.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "util/owned_file.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kShortestPeriodNs = 1'000;
constexpr int64_t kLongestPeriodNs = 3'600'000'000'000;

struct ImportArguments {
  std::string path;
  std::string format;
  std::string output;
  std::string period;
};

std::string AbsolutePath(const fs::path& path) {
  std::error_code error;
  return fs::absolute(path, error).lexically_normal().string();
}

// What came of it, for people, in a line.
std::string ImportedLine(const imports::Input& input,
                         const imports::Format& format,
                         const tables::Tables& tables,
                         const fs::path& output) {
  uint64_t peak_bytes = 0;
  for (const tables::PeakRow& peak : tables.peaks)
    peak_bytes = std::max(peak_bytes, peak.bytes);
  std::string line = fmt::format("{}: {}, {}, {} at the peak: {}", input.name(), format.title,
                                 util::FormatCountOf(tables.session.event_count, "row"),
                                 util::FormatBytes(peak_bytes), output.string());
  uint64_t lost = 0;
  for (const tables::LossRow& loss : tables.losses)
    lost += loss.count;
  if (lost > 0)
    line += fmt::format(" ({} could not be used: see `vramscope info`)", util::FormatCount(lost));
  return line;
}

util::Status ImportFile(const imports::Input& input,
                        const imports::Format& format,
                        const imports::Options& options,
                        const fs::path& shown_output) {
  const std::string output = AbsolutePath(shown_output);
  VRAMSCOPE_RETURN_IF_ERROR(CheckNotInput(output, input.path()));
  VRAMSCOPE_RETURN_IF_ERROR(CheckOutput(output));
  Progress progress("importing " + input.path());
  imports::Options with_progress = options;
  with_progress.progress = [&progress](double share) { progress.Update(share); };
  util::Result<util::AtomicFile> file = util::AtomicFile::Create(output, &cli::kFinishedContent);
  if (!file)
    return file.status();
  VRAMSCOPE_RETURN_IF_ERROR(WriteFinished(
      file->fd(), output, [&](tables::AllocationSink& sink) -> util::Result<tables::Tables> {
        util::Result<tables::Tables> tables = imports::Import(input, format, with_progress, sink);
        if (tables)
          tables->session.version = VRAMSCOPE_VERSION;
        return tables;
      }));
  VRAMSCOPE_RETURN_IF_ERROR(file->Commit());
  const auto recording = OpenRecording(output);
  if (!recording)
    return recording.status();
  Note(ImportedLine(input, format, (*recording)->tables(), shown_output));
  return {};
}

util::Status ImportOne(const ImportArguments& arguments,
                       const imports::Format* wanted,
                       const imports::Options& options) {
  const util::Result<imports::Input> input = imports::Input::Open(arguments.path);
  if (!input)
    return input.status();
  const imports::Format* const format = wanted != nullptr ? wanted : imports::Recognize(*input);
  if (format == nullptr)
    return util::Status::Error(input->path() + ": " + imports::WhyUnknown(*input));
  const std::string output = arguments.output.empty()
                                 ? fs::path(arguments.path).stem().string() + ".vram"
                                 : arguments.output;
  return ImportFile(*input, *format, options, output);
}

// The files of a folder, in the order of their names.
util::Result<std::vector<fs::path>> FilesOf(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code unreadable;
    if (it->is_regular_file(unreadable) && !it->path().filename().string().starts_with("."))
      files.push_back(it->path());
  }
  if (error)
    return util::Status::Error(fmt::format("cannot read {}: {}", folder, error.message()));
  std::sort(files.begin(), files.end());
  return files;
}

// One recording a log, whatever its format. A file that is not a log is left out, with a note.
util::Status ImportFolder(const ImportArguments& arguments,
                          const imports::Format* wanted,
                          const imports::Options& options) {
  const util::Result<std::vector<fs::path>> files = FilesOf(arguments.path);
  if (!files)
    return files.status();
  std::map<std::string, int> stems;
  for (const fs::path& file : *files)
    ++stems[file.stem().string()];
  const fs::path folder(arguments.output);
  std::error_code error;
  if (!arguments.output.empty() && !fs::is_directory(folder, error)) {
    const auto made = util::OwnedDirectory::Create(AbsolutePath(folder));
    if (!made)
      return made.status();
  }
  size_t imported = 0;
  size_t failed = 0;
  std::string first_failure;
  for (const fs::path& file : *files) {
    const util::Result<imports::Input> input = imports::Input::Open(file.string());
    if (!input) {
      Note("left out: " + input.status().message());
      continue;
    }
    const imports::Format* const format = imports::Recognize(*input);
    if (format == nullptr || (wanted != nullptr && format != wanted)) {
      Note(fmt::format(
          "left out: {}: {}", file.string(),
          format == nullptr ? "unknown format" : fmt::format("it is {}", format->title)));
      continue;
    }
    // Logs whose names differ in their ending alone keep it.
    const std::string stem = file.stem().string();
    const std::string name = stems[stem] > 1 ? file.filename().string() : stem;
    const util::Status status = ImportFile(*input, *format, options, folder / (name + ".vram"));
    if (status.ok()) {
      ++imported;
      continue;
    }
    Note(status.message());
    first_failure = first_failure.empty() ? file.filename().string() : first_failure;
    ++failed;
  }
  if (failed > 0) {
    return util::Status::Error(fmt::format("{}: {} of {} logs could not be imported, {} first",
                                           arguments.path, failed, failed + imported,
                                           first_failure));
  }
  if (imported == 0) {
    return util::Status::Error(
        fmt::format("{}: contains no log or trace of {}: the formats are {}", arguments.path,
                    wanted == nullptr ? "any known format" : wanted->name, imports::FormatNames()));
  }
  return {};
}

util::Status RunImport(const ImportArguments& arguments) {
  imports::Options options;
  if (!arguments.period.empty()) {
    const util::Result<int64_t> period_ns =
        ParsePeriod("--period", arguments.period, kShortestPeriodNs, kLongestPeriodNs);
    if (!period_ns)
      return period_ns.status();
    options.period_ns = *period_ns;
  }
  const imports::Format* wanted = nullptr;
  if (!arguments.format.empty()) {
    const util::Result<const imports::Format*> found = imports::FindFormat(arguments.format);
    if (!found)
      return found.status();
    wanted = *found;
  }
  std::error_code error;
  if (!fs::is_directory(arguments.path, error))
    return ImportOne(arguments, wanted, options);
  if (IsLiveDirectory(arguments.path) && arguments.path.ends_with(".vram.d")) {
    return util::Status::Error(fmt::format(
        "{} is already a vramscope recording: `vramscope finish` completes it", arguments.path));
  }
  return ImportFolder(arguments, wanted, options);
}

}  // namespace

void RegisterImport(CLI::App& app, int* exit_code) {
  CLI::App* const command =
      app.add_subcommand("import", "Convert another tool's log or trace to a recording");
  auto arguments = std::make_shared<ImportArguments>();
  command
      ->add_option("FILE", arguments->path,
                   "A log or trace, plain or packed with gzip or zstd; or a directory of them, "
                   "each of which becomes a recording")
      ->required();
  command
      ->add_option(
          "--from", arguments->format,
          "Read this format (default: detected from the content): " + imports::FormatNames())
      ->option_text("FORMAT");
  command
      ->add_option("--period", arguments->period,
                   "Time between two readings, for a log without times (default: 1s)")
      ->option_text("TIME");
  command
      ->add_option("-o", arguments->output,
                   "Write the recording to this file; for a directory, into this directory "
                   "(default: the name of the log, in the working directory)")
      ->option_text("FILE.vram");
  command->callback([arguments, exit_code] {
    util::Status status;
    try {
      status = RunImport(*arguments);
    } catch (const std::exception& failure) {
      status = util::Status::Error(
          fmt::format("{}: cannot be imported: {}", arguments->path, failure.what()));
    }
    *exit_code = ExitOf(status);
  });
}

}  // namespace vramscope::cli
