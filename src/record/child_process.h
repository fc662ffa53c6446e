// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "record/environment.h"
#include "util/status.h"

namespace vramscope::cli {

struct Captured {
  bool ended = false;  // false: it could not be started, or had to be killed
  int wait_status = 0;
  std::string output;  // standard output and error in one, cut at 1 MiB
  bool ok() const { return ended && wait_status == 0; }
};

// Runs a command with an empty standard input and these additional variables, and waits for its
// end. Stops it after `limit`, or soon after `give_up`, which is called repeatedly, returns true.
Captured RunCaptured(const std::vector<std::string>& command,
                     const Variables& variables,
                     std::chrono::milliseconds limit,
                     const std::function<bool()>& give_up = {});

// Writes a command's output to the standard error in one write, so that output of the recorded
// program does not come between two lines.
void SayAtOnce(std::string_view text);

// Runs `work` in a forked child, for what may hang or crash; its text is the output. The process
// must have only one thread.
Captured ForkCaptured(const std::function<std::string()>& work, std::chrono::milliseconds limit);

// The recorded program, as a shell's child would be: same terminal, same process group, same signal
// mask and dispositions as the launcher was given.
//
// It is forked before its environment is known, since the recording bears its process id, and waits
// until Start(). From Fork() to ReleaseSignals() this process does not die of the signals that it
// passes on.
class ChildProcess {
 public:
  // The process must have only one thread. `own_signal` (0: none) is not passed on.
  static util::Result<std::unique_ptr<ChildProcess>> Fork(const std::string& path,
                                                          const std::vector<std::string>& command,
                                                          int own_signal = 0);
  // Without Start(), the child ends and has executed nothing.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }

  // Executes the command with these variables added. 0, or the errno of execve(2).
  int Start(const Variables& variables);

  // Passes signals on until the child has ended. Returns its status as wait(2) gives it.
  // `on_own_signal` is called at each of those that are not passed on.
  int Wait(const std::function<void()>& on_own_signal = {});

  // Signals have their usual effect on this process again; those that came late are forgotten.
  void ReleaseSignals();

 private:
  ChildProcess() = default;
  [[noreturn]] void RunChild(const std::string& path, const std::vector<std::string>& command);
  void Forward(const siginfo_t& info);
  bool Reap(int* status);

  pid_t pid_ = -1;
  int start_pipe_ = -1;   // the child's variables; end of file at once: do not start
  int result_pipe_ = -1;  // errno of a failed exec; end of file: it has been executed
  bool reaped_ = false;
  int own_signal_ = 0;
  sigset_t forwarded_{};
  sigset_t old_mask_{};
};

// A shell's status for a wait(2) status: 128+N after signal N.
int ExitStatusOf(int wait_status);

}  // namespace vramscope::cli
