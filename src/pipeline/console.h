// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "util/status.h"

// What every command says on stderr, and the exit status that it ends with.
namespace vramscope::cli {

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
