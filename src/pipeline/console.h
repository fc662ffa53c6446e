// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "util/status.h"

// The messages of every command on stderr, and its exit status.
namespace vramscope::cli {

// Exit statuses of all commands except `run`, which returns its command's.
inline constexpr int kExitOk = 0;
inline constexpr int kExitLimitExceeded = 1;
inline constexpr int kExitError = 2;

// Prints "vramscope: MESSAGE" on stderr, in one line that drives no terminal, whatever the message
// holds, and returns kExitError. On a terminal long messages continue on the next line.
int Fail(std::string_view message);

// The exit status for this result. Prints an error as Fail() does.
int ExitOf(const util::Status& status);
int ExitOf(const util::Result<int>& status);

// Prints a note to stderr in the same form; the work continues.
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
