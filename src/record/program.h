// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

// What can be known of a command before it is started.
namespace vramscope::cli {

inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

struct Program {
  std::string path;  // what to execute
  // Set when the command cannot be started: the exit status of a shell, and one line that says why.
  int exit_status = 0;
  std::string error;
  // Set when it can be started but the dynamic loader will not load the probe into it: why.
  std::string not_recordable;
  // Its loader would look at the probe all the same, and end the program or complain: LD_PRELOAD
  // must not name it.
  bool refuses_preload = false;
};

// Looks `command` up as execvp(3) does, and looks into the file: through `#!` to the interpreter.
Program FindProgram(const std::string& command);

// Why the dynamic loader does not load the probe into this program, or "": "is statically linked".
std::string WhyNotRecordable(const std::string& path);

// A name for the recording: the basename of the command without extension, or of the script where
// the command is an interpreter (`python -u train.py` is "train", `python -m pkg.tool` "pkg.tool").
std::string NameOfCommand(const std::vector<std::string>& command);

// The interpreter and its argument of a `#!` line (`text` is the beginning of a file), "" where
// there is none. A seam for tests.
std::string InterpreterOf(const std::string& text);

}  // namespace vramscope::cli
