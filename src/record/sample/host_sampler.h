// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_groups.h"
#include "format/records.h"
#include "record/live_file_writer.h"
#include "record/watch/watches.h"
#include "record/watch/worker.h"

namespace vramscope::cli {

// What `/proc/PID/status` says of a process's host memory; zeros for any other text.
struct HostUse {
  uint64_t resident_bytes = 0;
  uint64_t shared_bytes = 0;  // the resident part of shared memory
};
HostUse ParseHostUse(std::string_view status);

// Samples the host memory of the program's processes ten times a second, and how full the control
// group closest to its limit is. The kernel kills a process whose group exceeds it, and leaves no
// trace in the process. Unchanged samples are written once a second.
class HostSampler : public Watch {
 public:
  HostSampler(LiveFileWriter& file, std::string live_directory, pid_t root);
  ~HostSampler() override { Stop(); }

  // The sample after the program's end, which counts kills. After Stop().
  void WriteLast();

 private:
  void Begin() override { Sample(); }
  std::chrono::nanoseconds Pause() const override { return pace_.Pause(); }
  bool Look() override;
  void Sample();
  void FindGroups();
  void ReadGroups(format::HostSample* sample) const;

  LiveFileWriter& file_;
  const pid_t root_;
  LookPace pace_;
  LookPace tree_pace_;  // of the list of processes, which takes longer
  std::chrono::steady_clock::time_point next_tree_;
  std::vector<pid_t> processes_;
  base::MemoryGroups groups_;
  uint64_t kills_before_ = 0;  // in its group when it came there, less those that count
  format::HostSample written_, last_;
  bool is_last_written_ = false;
};

}  // namespace vramscope::cli
