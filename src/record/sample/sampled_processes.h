// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/survivors.h"
#include "record/live_file_writer.h"

namespace vramscope::cli {

// Its words, as /proc has them.
std::vector<std::string> CommandLineOf(pid_t pid);

// The processes of a recording without the probe: one, and whichever below it NVML lists. Says who
// they are in the launcher's live file. Used on the thread that the file belongs to.
class SampledProcesses {
 public:
  // `root` need not have begun its command yet, which will be of this executable.
  SampledProcesses(LiveFileWriter& file,
                   pid_t root,
                   const std::vector<std::string>& command,
                   const std::string& executable);

  // NVML lists it, with a figure that will be written with this time or a later one.
  void OnListed(pid_t pid, uint64_t time_ns);

 private:
  void Write(const ProcessStat& stat,
             pid_t pid,
             uint64_t time_ns,
             const std::vector<std::string>& command,
             const std::string& executable);

  LiveFileWriter& file_;
  const pid_t root_;
  std::set<std::pair<pid_t, uint64_t>> known_;  // a number is used again, so with its start
};

}  // namespace vramscope::cli
