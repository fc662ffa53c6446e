// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <system_error>

#include "trace/live/live_trace.h"
#include "trace/trace.h"

namespace vramscope::trace {

util::Result<std::unique_ptr<Trace>> OpenTrace(const std::string& path, OpenOptions options) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_directory(path, error))
    return LiveTrace::Open(path, path, options);
  const bool exists = fs::exists(path, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    return util::Status::Error(path + ": cannot be opened: " + error.message());
  }
  if (!exists) {
    const std::string live = path + ".d";
    if (fs::is_directory(live, error))
      return LiveTrace::Open(path, live, options);
    return util::Status::Error(path + ": no such file, and no live recording " + live +
                               " beside it");
  }
  return util::Status::Error(path + ": not a live recording: those are directories, NAME.vram.d");
}

}  // namespace vramscope::trace
