// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "record/attach/shared_folder.h"
#include "util/status.h"

// Calls a function in another process, and waits for its answer.
namespace vramscope::cli {

// Of the Python package, where the process has Python. The probe's function is for the others.
struct RemoteCall {
  std::string function;                // of its module _attached: "begin"
  std::vector<std::string> arguments;  // passed as str

  std::string native_function;  // "vramscope_begin_native"; its last argument answers
  std::array<std::string, 2> native_arguments;
};

// Paths as the process sees them.
struct RemoteFiles {
  std::string package;  // "/.../site-packages/vramscope"; "": not installed
  std::string probe;
  const SharedFolder* folder = nullptr;  // for what the call and its answer need
};

enum class CallEnd {
  kDone,     // it has returned
  kGone,     // the process has ended
  kTimeOut,  // it has not begun for so long, and will not begin any more
  kGivenUp,  // `give_up` returned true; as above
};

struct CallLimits {
  std::chrono::milliseconds limit{30'000};
  std::function<void()> on_wait;  // once, when it takes longer than a second
  std::function<bool()> give_up;  // called a thousand times a second
};

// Whether the process has Python, and so the package is called. An error if it cannot be made to
// call anything.
util::Result<bool> CheckCallable(pid_t pid, bool has_package);

// An error if the process cannot be made to call it, or the text of the error that the function
// reported.
util::Result<CallEnd> CallInProcess(pid_t pid,
                                    const RemoteCall& call,
                                    const RemoteFiles& files,
                                    const CallLimits& limits);

}  // namespace vramscope::cli
