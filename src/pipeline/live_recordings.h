// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tables/recording.h"
#include "util/status.h"

// The recordings that are being written, for commands that read them again and again.
namespace vramscope::cli {

// Whether a process or the launcher records into the directory.
bool IsRecorded(const std::string& live_directory);

class LiveRecordings {
 public:
  // `what`: names of recordings, folders and process ids. Empty: every recording of a process that
  // this user may see. An error if one of them does not exist.
  static util::Result<LiveRecordings> Make(const std::vector<std::string>& what);

  // Those that are recorded now, in order, each once. Adds the named ones that are not to `ended`.
  std::vector<std::string> Find(std::vector<std::string>* ended) const;

 private:
  LiveRecordings() = default;

  bool all_ = false;
  std::vector<std::string> directories_;
  std::vector<std::string> folders_;
};

// Which processes of a recording still run.
class RunningProcesses {
 public:
  RunningProcesses(const tables::Recording& recording, const std::string& live_directory);

  bool Has(tables::ProcessId process) const;

 private:
  const tables::Tables& tables_;
  std::vector<uint32_t> recorders_;
  bool launcher_is_alive_ = false;
};

}  // namespace vramscope::cli
