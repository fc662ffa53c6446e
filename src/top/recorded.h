// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/live_recordings.h"
#include "record/watch/worker.h"
#include "tables/recording.h"
#include "top/follower.h"
#include "top/model.h"
#include "util/status.h"

namespace vramscope::cli {

// What to watch: everything, a process, a recording, or the recordings in a folder.
class TopTarget {
 public:
  // An error if `what` names none of these.
  static util::Result<TopTarget> Make(const std::string& what);

  std::vector<std::string> FindRecordings(std::vector<std::string>* notes) const;
  // Whether processes without a recording are shown.
  bool HasUnrecorded() const { return !recordings_ || all_; }
  // 0: not a single process.
  uint32_t pid() const { return pid_; }

 private:
  bool all_ = false;
  uint32_t pid_ = 0;
  std::optional<LiveRecordings> recordings_;  // none: the process, recorded or not
};

// How fast a figure grows in the last minute, by its lowest values: memory of a step comes and
// goes.
class GrowthHistory {
 public:
  // Bytes a minute; none in the first seconds.
  std::optional<double> Add(int64_t time_ns, uint64_t bytes);

 private:
  std::deque<std::pair<int64_t, uint64_t>> past_;  // by time
};

// A recorded process that runs, on one device, or on none.
struct RecordedProcess {
  uint32_t pid = 0;
  std::string command;
  bool has_device = false;  // not yet
  tables::DeviceKind kind = tables::DeviceKind::kGpu;
  int32_t index = 0;
  std::string uuid;  // of a GPU; "": not known
  std::shared_ptr<TopDetails> details;
};

struct RecordedProcesses {
  std::vector<RecordedProcess> processes;
  std::vector<std::string> notes;
};

// Reads recordings again and again on a thread of its own. Each waits 99 times the processor time
// of the last reading. Recordings are followed (follower.h). One that cannot be, of a ring, is read
// as a whole.
class RecordingsReader {
 public:
  explicit RecordingsReader(const TopTarget& target) : target_(target) {}
  ~RecordingsReader() { worker_.Stop(); }

  // As a whole, with its history.
  void ReadOnce();
  void Start(int64_t period_ns);
  // Reads now, whatever it costs.
  void Hurry();
  RecordedProcesses Take();

 private:
  struct Recording {
    int64_t next_ns = 0;
    std::unique_ptr<Follower> follower;              // null: it is read as a whole
    std::map<std::string, GrowthHistory> histories;  // by process, device and category
    std::vector<RecordedProcess> processes;
    std::string error;
  };
  void FindRecordings();
  // Returns the processor time of other processes.
  static int64_t Read(const std::string& directory, bool once, Recording* recording);
  void ReadDue(int64_t period_ns);
  void Publish();

  const TopTarget target_;
  std::map<std::string, Recording> recordings_;
  std::vector<std::string> notes_;
  int64_t next_find_ns_ = 0;
  std::atomic<bool> hurries_{false};
  std::mutex mutex_;
  RecordedProcesses published_;  // under the mutex
  Worker worker_;
};

}  // namespace vramscope::cli
