// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record/watch/worker.h"

namespace vramscope::cli {

// Why the probe in a process cannot make its file in `directory`, and cannot even leave a mark
// there: the process has become another user, or sees other file systems. "" where it can, or where
// that cannot be said.
std::string WhyOutOfReach(pid_t pid, const std::string& directory);

// Whose files a process makes, out of `/proc/PID/status`. False for anything else. A seam for
// tests.
struct FileUser {
  uid_t user = 0;
  bool may_write_all = false;  // CAP_DAC_OVERRIDE
};
bool ParseFileUser(std::string_view status, FileUser* user);

// A process of the session that the probe is not in, or from which it reaches no file.
struct UnrecordedProcess {
  pid_t pid = 0;
  std::string name;
  std::string reason;  // "was started without the probe's environment"
  bool uses_gpu = false;
};

// Looks from outside, a few times a second, for processes below the command that are not recorded:
// the loader of a static or setuid program takes no LD_PRELOAD, and a program can be started with
// an environment of its own, or become another user. Nothing is forced on them: they are named. One
// that lives shorter than two looks is not seen, unless NVML lists it.
class ProcessWatch {
 public:
  // `root` is the command's process. Where it is known not to be recorded, it is passed over.
  ProcessWatch(pid_t root, bool root_is_recorded, std::string live_directory);
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  void Start();
  // No looks any more. Idempotent.
  void Stop() { worker_.Stop(); }
  // NVML lists these processes on its `gpu`-th device. From any thread.
  void SawOnGpu(size_t gpu, std::vector<pid_t> pids);
  // After Stop().
  std::vector<UnrecordedProcess> Found() const;
  const std::string& failure() const { return worker_.failure(); }  // "" or why it ended early

 private:
  // A number is used again, so the time of its start belongs to it.
  using Key = std::pair<pid_t, uint64_t>;

  void Loop();
  void Look();
  void Examine(pid_t pid, bool uses_gpu);

  const pid_t root_;
  const bool root_is_recorded_;
  const std::string live_directory_;
  const std::vector<std::string> sessions_;
  Worker worker_;
  std::mutex mutex_;
  std::map<size_t, std::vector<pid_t>> on_gpu_;  // as they were last listed, under the mutex
  // The thread's own until Stop().
  std::map<Key, int> suspects_;  // how many looks running found it without the probe
  std::map<Key, int> former_suspects_;
  std::map<Key, UnrecordedProcess> found_;
};

}  // namespace vramscope::cli
