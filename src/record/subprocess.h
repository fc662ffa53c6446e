// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "record/environment.h"

namespace vramscope::cli {

struct Captured {
  bool ended = false;  // false: it could not be started, or had to be killed
  int wait_status = 0;
  std::string output;  // standard output and error together, cut at 1 MiB
  bool ok() const { return ended && wait_status == 0; }
};

// Runs a command with nothing on its standard input and these variables added, and waits: not
// longer than `limit`, and not much longer than until `give_up`, which is asked again and again,
// says so.
Captured RunCaptured(const std::vector<std::string>& command,
                     const Variables& variables,
                     std::chrono::milliseconds limit,
                     const std::function<bool()>& give_up = {});

// Writes what such a command said to the standard error, in one write, so that nothing of the
// recorded program's comes between two lines.
void SayAtOnce(std::string_view text);

// Runs `work` in a forked child, for what may hang or crash; its text is the output. To be called
// while the process has one thread.
Captured ForkCaptured(const std::function<std::string()>& work, std::chrono::milliseconds limit);

}  // namespace vramscope::cli
