// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "util/status.h"

namespace vramscope::cli {

// Makes the finished file `output` of a live directory, showing progress on a terminal. Where a
// file of the same recording that has as much stands there, it stays. On an error the directory
// stays as it was. When it is interrupted by a signal, this process exits with
// `interrupted_status`.
util::Status FinishRecording(const std::string& live_directory,
                             const std::string& output,
                             int interrupted_status);

// Writes what a program that goes on has recorded up to now as a finished recording `output`.
util::Status WriteSnapshot(const std::string& live_directory, const std::string& output);

// A path as people would type it from here.
std::string ShortPath(const std::string& path);

struct ReportOptions {
  bool no_report = false;    // only the file's name
  std::string html;          // also write this page
  size_t refusals_told = 0;  // of memory, while the program ran
};
// Says on stderr what the finished recording at `path` holds. Errors are said there too; false
// then.
bool PrintRecording(const std::string& path, const ReportOptions& options);

}  // namespace vramscope::cli
