// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "pipeline/open_recording.h"

// If a standard stream is closed, a file of ours would take its number, and output for that stream
// would go into the file. The command of `run` still finds the stream closed.
void FillStandardStreams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0)
      (void)!open("/dev/null", O_RDWR | O_CLOEXEC);  // takes the lowest free number
  }
}

int main(int argc, char** argv) {
  FillStandardStreams();
  try {
    return vramscope::cli::Main(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    // Where SIGPIPE is ignored (services of systemd) printing throws it.
    const auto* const from_system = dynamic_cast<const std::system_error*>(&error);
    if (from_system != nullptr && from_system->code() == std::errc::broken_pipe)
      vramscope::cli::EndQuietly();
    return vramscope::cli::Fail(
        fmt::format("internal error: {}: please report it with the command line", error.what()));
  }
}
