// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "util/status.h"

namespace CLI {
class App;
}

// One function a subcommand, in the file cmd_NAME.cc: it adds its options to `app` and sets a
// callback that does the work and leaves the process's exit status in *exit_code. Callbacks let no
// exception out. `exit_code` outlives the parse.
namespace vramscope::cli {

// `command`: what stood behind `--`, which is not for us to parse.
void RegisterRun(CLI::App& app, int* exit_code, std::vector<std::string> command);
void RegisterSample(CLI::App& app, int* exit_code, std::vector<std::string> command);
void RegisterEnv(CLI::App& app, int* exit_code);
void RegisterReport(CLI::App& app, int* exit_code);
void RegisterOpen(CLI::App& app, int* exit_code);
void RegisterIterations(CLI::App& app, int* exit_code);
void RegisterLeaks(CLI::App& app, int* exit_code);
void RegisterDiff(CLI::App& app, int* exit_code);
void RegisterPlot(CLI::App& app, int* exit_code);
void RegisterKeywords(CLI::App& app, int* exit_code);
void RegisterInfo(CLI::App& app, int* exit_code);
void RegisterImport(CLI::App& app, int* exit_code);
void RegisterExport(CLI::App& app, int* exit_code);
void RegisterFinish(CLI::App& app, int* exit_code);
void RegisterSnapshot(CLI::App& app, int* exit_code);
void RegisterYield(CLI::App& app, int* exit_code);
void RegisterResume(CLI::App& app, int* exit_code);
void RegisterResolve(CLI::App& app, int* exit_code);
void RegisterSidecar(CLI::App& app, int* exit_code);
void RegisterFold(CLI::App& app, int* exit_code);
void RegisterRefused(CLI::App& app, int* exit_code);
void RegisterDoctor(CLI::App& app, int* exit_code);

// Exit statuses outside `run`, which has its command's.
inline constexpr int kExitOk = 0;
inline constexpr int kExitLimitExceeded = 1;
inline constexpr int kExitError = 2;

// Prints "vramscope: MESSAGE" on stderr, in one line that drives no terminal, whatever the message
// holds, and returns kExitError. On a terminal what has no room goes on below.
int Fail(std::string_view message);

// The exit status of work that ended so; an error is told as by Fail().
int ExitOf(const util::Status& status);
int ExitOf(const util::Result<int>& status);

// For CLI11, which takes -3 for a very large number: "" where `text` is a whole number from 0 on,
// else what is wrong with it.
std::string CheckCount(const std::string& text);

// A length of time as people type it, in nanoseconds: "1ms", "500us", "0.1 s". Errors name the
// option.
util::Result<int64_t> ParsePeriod(const std::string& option,
                                  const std::string& text,
                                  int64_t shortest_ns,
                                  int64_t longest_ns);

// A note on stderr in the same form; the work goes on.
void Note(std::string_view message);

// A line on stderr that shows how far long work has come: only on a terminal, only after half a
// second, gone when the object is.
class Progress {
 public:
  // `what` as in "reading train.vram".
  explicit Progress(const std::string& what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `share` from 0 to 1. Cheap enough for every batch.
  void Update(double share);

 private:
  std::string what_;
  int64_t start_ns_;
  int64_t shown_ns_ = 0;
  bool on_terminal_;
  bool shown_ = false;
};

}  // namespace vramscope::cli
