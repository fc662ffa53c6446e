// SPDX-License-Identifier: Apache-2.0
#include "cli/open_trace.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/commands.h"
#include "trace/trace.h"
#include "util/file.h"

namespace vramscope::cli {

util::Result<std::unique_ptr<engine::Analysis>> OpenAnalysis(const std::string& path,
                                                             trace::OpenOptions options) {
  util::Result<std::unique_ptr<trace::Trace>> trace = trace::OpenTrace(path, options);
  if (!trace.ok())
    return trace.status();
  Progress progress("reading " + path);
  return engine::Analysis::Create(std::move(*trace),
                                  [&progress](double share) { progress.Update(share); });
}

util::Status PrintOut(std::string_view text) {
  errno = 0;
  const size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written == text.size() && std::fflush(stdout) == 0)
    return {};
  return util::Status::Error(
      fmt::format("cannot write to the standard output: {}", util::ErrnoText(errno)));
}

util::Status CheckNotInput(const std::string& output, const std::string& input) {
  std::error_code error;
  if (!std::filesystem::equivalent(output, input, error) || error)
    return {};
  return util::Status::Error(
      fmt::format("{} is the recording itself: choose another file to write", output));
}

}  // namespace vramscope::cli
