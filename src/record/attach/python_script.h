// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "util/owned_file.h"
#include "util/status.h"

// Calls a function of the Python package in another process, and waits for its answer.
namespace vramscope::cli {

struct PackageCall {
  std::string folder;                  // of the package: /.../site-packages/vramscope
  std::string function;                // of its module _attached: "begin"
  std::vector<std::string> arguments;  // passed as str
};

enum class CallEnd {
  kDone,     // it has returned
  kGone,     // the process has ended
  kTimeOut,  // it has executed no Python for so long; it will not make the call any more
  kGivenUp,  // `give_up` returned true; as above
};

struct CallLimits {
  std::chrono::milliseconds limit{30'000};
  std::function<void()> on_wait;  // once, when it takes longer than a second
  std::function<bool()> give_up;  // called a thousand times a second
};

// An error if the process cannot be made to call it, or the text of the exception that the function
// raised.
util::Result<CallEnd> CallInPython(pid_t pid, const PackageCall& call, const CallLimits& limits);

// A new directory of this user alone, in the place for temporary files.
util::Result<util::OwnedDirectory> MakePrivateFolder();

// `text`, which need not be UTF-8, as a literal of type str, as os.fsdecode() has it. A seam for
// tests.
std::string PythonText(const std::string& text);

}  // namespace vramscope::cli
