// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <termios.h>

#include <cstddef>
#include <string>
#include <vector>

#include "util/file.h"

namespace vramscope::cli {

// The terminal of stdin and stdout as a full screen without echo. The destructor restores it. From
// the constructor on, SIGWINCH, SIGTSTP and SIGCONT are blocked: not thread-safe, it is made before
// other threads.
class TerminalScreen {
 public:
  TerminalScreen();
  ~TerminalScreen();
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  // Can be read when the size has changed, or the user wants to suspend the program.
  int signals() const { return signals_.get(); }
  // Takes these signals. Stops this process for Ctrl-Z, until it is continued.
  void OnSignals();

  size_t rows() const;
  // Writes what differs from the last screen. False if the terminal is gone.
  bool Draw(const std::vector<std::string>& lines);
  // What was typed, "" if the terminal is gone. Call it only when stdin can be read.
  std::string ReadKeys() const;

 private:
  void Enter();
  void Leave();

  termios saved_{};
  sigset_t blocked_{};
  sigset_t old_mask_{};
  util::UniqueFd signals_;
  std::vector<std::string> drawn_;
};

}  // namespace vramscope::cli
