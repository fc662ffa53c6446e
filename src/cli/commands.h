// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/console.h"
#include "util/status.h"

namespace CLI {
class App;
}

// One function a subcommand, in the file cmd_NAME.cc: it adds its options to `app` and sets a
// callback that does the work and leaves the process's exit status in *exit_code. Callbacks let no
// exception out. `exit_code` outlives the parse.
namespace vramscope::cli {

// Parses `words`, the program's arguments, and runs the command that they name. Returns the exit
// status.
int Main(std::vector<std::string> words);

// `command`: the words after `--`, which are not parsed.
void RegisterRun(CLI::App& app, int* exit_code, std::vector<std::string> command);
void RegisterSample(CLI::App& app, int* exit_code, std::vector<std::string> command);
void RegisterEnv(CLI::App& app, int* exit_code);
void RegisterReport(CLI::App& app, int* exit_code);
void RegisterOpen(CLI::App& app, int* exit_code);
void RegisterIterations(CLI::App& app, int* exit_code);
void RegisterLeaks(CLI::App& app, int* exit_code);
void RegisterWhatIf(CLI::App& app, int* exit_code);
void RegisterDiff(CLI::App& app, int* exit_code);
void RegisterPredict(CLI::App& app, int* exit_code);
void RegisterPlot(CLI::App& app, int* exit_code);
void RegisterKeywords(CLI::App& app, int* exit_code);
void RegisterInfo(CLI::App& app, int* exit_code);
void RegisterFleet(CLI::App& app, int* exit_code);
void RegisterMetrics(CLI::App& app, int* exit_code);
void RegisterTop(CLI::App& app, int* exit_code);
void RegisterImport(CLI::App& app, int* exit_code);
void RegisterExport(CLI::App& app, int* exit_code);
void RegisterFinish(CLI::App& app, int* exit_code);
void RegisterSnapshot(CLI::App& app, int* exit_code);
void RegisterYield(CLI::App& app, int* exit_code);
void RegisterResume(CLI::App& app, int* exit_code);
void RegisterResolve(CLI::App& app, int* exit_code);
void RegisterSidecar(CLI::App& app, int* exit_code);
void RegisterCompact(CLI::App& app, int* exit_code);
void RegisterRefused(CLI::App& app, int* exit_code);
void RegisterAttach(CLI::App& app, int* exit_code);
void RegisterDetach(CLI::App& app, int* exit_code);
void RegisterDump(CLI::App& app, int* exit_code);
void RegisterDoctor(CLI::App& app, int* exit_code);

// Completes the recording in the live directory of a process that continues, and reports. The exit
// status. `output`: "" is the directory's own.
int FinishStopped(const std::string& live_directory, pid_t pid, const std::string& output);

struct AttachOptions;

// What `attach` and `dump` share.
struct AttachArguments {
  pid_t pid = 0;
  std::string timeout = "30s";
};
util::Result<int64_t> ParseTime(const std::string& option, const std::string& text);
void AddAttachArguments(CLI::App& command, AttachArguments* arguments);
util::Status ReadAttachArguments(const AttachArguments& arguments, AttachOptions* options);

// Replaces this process by `python3 -m vramscope.fleet WORDS`; returns an exit status on failure.
int RunPackage(std::vector<std::string> words);

}  // namespace vramscope::cli
