// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "cli/commands.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "util/size_text.h"

// A finished recording of a running program. Its live log is read as every command reads it: the
// program and its launcher do nothing for it.
namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kMostNumber = 1'000'000;
// Of another snapshot, that takes the name which was free a moment ago.
constexpr int kAttempts = 16;

struct SnapshotArguments {
  std::string what;
  std::string output;
};

// NAME.snapshot-N.vram beside the recording, with the first number that is free.
std::string FreeName(const std::string& directory) {
  std::string name = OutputOf(directory);
  constexpr std::string_view kExtension = ".vram";
  if (name.ends_with(kExtension))
    name.resize(name.size() - kExtension.size());
  struct stat info {};
  std::string path;
  for (int number = 1; number < kMostNumber; ++number) {
    path = fmt::format("{}.snapshot-{}.vram", name, number);
    if (lstat(path.c_str(), &info) != 0 && errno == ENOENT &&
        lstat(LiveDirectoryOf(path).c_str(), &info) != 0)
      break;
  }
  return path;
}

util::Status TakeSnapshot(const SnapshotArguments& arguments) {
  const util::Result<std::string> directory = FindLiveDirectory(arguments.what);
  if (!directory)
    return directory.status();
  if (!LauncherIsAlive(*directory) && LiveRecorders(*directory).empty()) {
    return util::Status::Error(
        fmt::format("the recording {} has ended: `vramscope finish {}` completes it",
                    ShortPath(*directory), ShortPath(*directory)));
  }
  std::error_code error;
  std::string output;
  for (int attempt = 1;; ++attempt) {
    output = arguments.output.empty()
                 ? FreeName(*directory)
                 : fs::absolute(arguments.output, error).lexically_normal().string();
    VRAMSCOPE_RETURN_IF_ERROR(CheckOutput(output));
    const util::Status written = WriteSnapshot(*directory, output);
    if (written.ok())
      break;
    // Another may have taken the name that was free a moment ago.
    struct stat info {};
    const bool is_taken = arguments.output.empty() && lstat(output.c_str(), &info) == 0;
    if (!is_taken || attempt == kAttempts)
      return written;
  }
  const uintmax_t size_bytes = fs::file_size(output, error);
  Note(fmt::format("{} ({})", ShortPath(output), util::FormatBytes(error ? 0 : size_bytes)));
  return {};
}

}  // namespace

void RegisterSnapshot(CLI::App& app, int* exit_code) {
  CLI::App* const snapshot =
      app.add_subcommand("snapshot", "Copy the recording of a running program");
  auto arguments = std::make_shared<SnapshotArguments>();
  snapshot
      ->add_option("PID|NAME", arguments->what,
                   "The recorded process, or its recording: NAME, NAME.vram or NAME.vram.d")
      ->required();
  snapshot
      ->add_option("-o", arguments->output,
                   "Write the copy to FILE (default: NAME.snapshot-N.vram beside the recording)")
      ->option_text("FILE");
  snapshot->footer(
      "The program and its recording continue. `vramscope run --snapshot-on SIGUSR1`\n"
      "takes a snapshot each time `run` receives that signal.");
  snapshot->callback([arguments, exit_code] { *exit_code = ExitOf(TakeSnapshot(*arguments)); });
}

}  // namespace vramscope::cli
