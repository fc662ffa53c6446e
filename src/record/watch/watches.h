// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record/watch/worker.h"
#include "util/status.h"

// What `vramscope run` watches while the program runs: six watches of one live directory, each
// with a thread of its own, since a look may wait for another process.
namespace vramscope::cli {

// The loop that all of them share:
//
//   Start() -> thread: Begin(), then while not stopped: wait for Pause(), Look()
//   Stop()  -> ends the wait, or what the look is doing, and joins the thread
//
// A class that derives from it calls Stop() in its destructor, before its members are gone.
class Watch {
 public:
  virtual ~Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void Start() {
    worker_.Start([this] { Loop(); });
  }
  // Idempotent.
  void Stop() { worker_.Stop(); }
  // "" or why it ended early. After Stop().
  const std::string& failure() const { return worker_.failure(); }

 protected:
  explicit Watch(std::string live_directory) : live_directory_(std::move(live_directory)) {}

  const std::string live_directory_;
  Worker worker_;

 private:
  virtual void Begin() {}
  virtual std::chrono::nanoseconds Pause() const = 0;
  // False: no further look is of use.
  virtual bool Look() = 0;
  void Loop() {
    Begin();
    while (worker_.Rest(Pause()) && Look()) {
    }
  }
};

struct ExitSeen {
  pid_t pid = 0;
  int64_t time_ns = 0;  // CLOCK_MONOTONIC
};

// Sees when recorded processes other than the command itself end. Their own last event can be half
// a second older, and until the end the GPU still counts their memory. A process that begins and
// ends between two looks at the live directory is not seen.
class ExitWatch : public Watch {
 public:
  // `command`, the command's process, is left out: the launcher waits for it anyway.
  ExitWatch(std::string live_directory, pid_t command)
      : Watch(std::move(live_directory)), command_(command) {}
  ~ExitWatch() override { Stop(); }

  // False if this kernel has no descriptors of processes (before Linux 5.3).
  bool Start();
  void Stop();
  // After Stop(), in the order of time.
  const std::vector<ExitSeen>& seen() const { return seen_; }

 private:
  std::chrono::nanoseconds Pause() const override { return {}; }  // Look() waits by poll()
  bool Look() override;
  void OpenNewProcesses();

  const pid_t command_;
  int wake_ = -1;                     // an eventfd: readable when the thread is to stop
  std::map<pid_t, int> descriptors_;  // -1: not ours to watch, or gone
  std::vector<ExitSeen> seen_;
};

// Why the probe in a process cannot make its file in `directory`, and cannot even leave a mark
// there: the process has become another user, or sees other file systems. "" if it can, or if that
// is unknown.
std::string WhyOutOfReach(pid_t pid, const std::string& directory);

// The user that owns the files that a process makes, from `/proc/PID/status`. False if `status` is
// anything else. A seam for tests.
struct FileUser {
  uid_t user = 0;
  bool may_write_all = false;  // CAP_DAC_OVERRIDE
};
bool ParseFileUser(std::string_view status, FileUser* user);

// A process of the session without the probe, or whose probe cannot reach the directory.
struct UnrecordedProcess {
  pid_t pid = 0;
  std::string name;
  std::string reason;  // "was started without the probe's environment"
  bool uses_gpu = false;
};

// Looks from outside, a few times a second, for processes below the command that are not recorded:
// the loader of a static or setuid program takes no LD_PRELOAD, and a program can be started with
// an environment of its own, or become another user. They are named, and nothing is forced on them.
// A process that lives shorter than two looks is not seen, unless NVML lists it.
class ProcessWatch : public Watch {
 public:
  // `root` is the command's process. It is skipped if it is known not to be recorded.
  ProcessWatch(pid_t root, bool root_is_recorded, std::string live_directory);
  ~ProcessWatch() override { Stop(); }

  // NVML lists these processes on its `gpu`-th device. From any thread.
  void SawOnGpu(size_t gpu, std::vector<pid_t> pids);
  // After Stop().
  std::vector<UnrecordedProcess> Found() const;

 private:
  // A process id is reused, so the start time is part of the key.
  using Key = std::pair<pid_t, uint64_t>;

  std::chrono::nanoseconds Pause() const override { return pace_.Pause(); }
  bool Look() override;
  void Examine(pid_t pid, bool uses_gpu);

  const pid_t root_;
  const bool root_is_recorded_;
  const std::vector<std::string> sessions_;
  std::mutex mutex_;
  std::map<size_t, std::vector<pid_t>> on_gpu_;  // as they were last listed, under the mutex
  // Only the thread uses these until Stop().
  LookPace pace_;
  std::map<Key, int> suspects_;  // how many looks in a row found it without the probe
  std::map<Key, int> former_suspects_;
  std::map<Key, UnrecordedProcess> found_;
};

// Reports while the program runs why an allocation failed, and saves the report. It reads the
// headers of the live files; another process reads the recording, at most a few times. After a
// driver's refusal an allocator may still free its cache and succeed, so such a report waits until
// nothing more has come for a second. A process whose framework raises its first failure waits for
// the report, which then comes at once.
class RefusalWatch : public Watch {
 public:
  RefusalWatch(std::string live_directory, std::string output);
  // An unfinished report is given up: there is one after the run.
  ~RefusalWatch() override { Stop(); }

  // Failed allocations that were reported. After Stop().
  size_t told() const { return told_; }

 private:
  using Clock = std::chrono::steady_clock;
  // The counts in the headers of a recording's live files.
  struct Refusals {
    uint64_t refused = 0;              // by the driver
    uint64_t gave_up = 0;              // by caching allocators, which ask the driver twice each
    std::vector<std::string> waiting;  // files of processes that wait for the report

    bool CountsAre(const Refusals& other) const {
      return refused == other.refused && gave_up == other.gave_up;
    }
  };

  void Begin() override;
  std::chrono::nanoseconds Pause() const override { return pace_.Pause(); }
  bool Look() override;
  Refusals FindRefusals() const;
  void Tell();
  // Lets the waiting processes continue.
  void Release() const;

  const std::string output_;
  LookPace pace_;
  Refusals reported_, last_;
  Clock::time_point changed_, next_report_;
  int reports_ = 0;
  size_t told_ = 0;
};

// Takes snapshots of a recording on request, one after the other, each in a process of its own: an
// error there harms neither the recording nor its program.
class SnapshotTaker : public Watch {
 public:
  explicit SnapshotTaker(std::string live_directory) : Watch(std::move(live_directory)) {}
  // An unfinished snapshot is given up: the recording is about to be finished itself.
  ~SnapshotTaker() override { Stop(); }

  void Request();
  // Snapshots that were requested and not taken. After Stop().
  size_t given_up() const { return requested_; }

 private:
  std::chrono::nanoseconds Pause() const override;
  bool Look() override;
  void Take();

  std::atomic<size_t> requested_{0};
};

// Writes the summary of a recording into a folder of summaries, every so often and at the end, each
// time in a process of its own, so that an error there harms neither the recording nor its program.
// A summary replaces the one before it in one step.
class SummaryTaker : public Watch {
 public:
  SummaryTaker(std::string live_directory, std::string file, std::chrono::nanoseconds period)
      : Watch(std::move(live_directory)), file_(std::move(file)), period_(period) {}
  ~SummaryTaker() override { Stop(); }

  // Writes the summary of a recording; returns why it could not, or "".
  std::string Write(const std::string& recording, const std::function<bool()>& give_up) const;

 private:
  std::chrono::nanoseconds Pause() const override { return period_; }
  // An error is reported at the end only: the next summary may be complete.
  bool Look() override;

  const std::string file_;
  const std::chrono::nanoseconds period_;
};

// The number of a signal that `run` may take for itself: SIGUSR1, SIGUSR2 or SIGRTMIN+N.
util::Result<int> SnapshotSignal(const std::string& name);

// Keeps a live directory within a size (docs/FORMAT.md): measures its space on the disk, and starts
// a process that compacts its old part. If that takes too long, the oldest part is
// dropped. Errors harm neither the recording nor its program; the directory then grows as without a
// ring.
class RingKeeper : public Watch {
 public:
  RingKeeper(std::string live_directory, uint64_t size_bytes)
      : Watch(std::move(live_directory)), size_bytes_(size_bytes) {}
  // An unfinished compaction is given up.
  ~RingKeeper() override { Stop(); }

  // By how much the size was exceeded and why; "" if it was not. After Stop().
  std::string note();

 private:
  struct Space {
    uint64_t live = 0;
    uint64_t past = 0;
    uint64_t total() const { return live + past; }
  };
  enum class Outcome : uint8_t { kDone, kStopped, kTooSlow, kHeld, kFailed };

  void Begin() override { Measure(); }
  std::chrono::nanoseconds Pause() const override;
  // Compacts what is over three quarters of the ring down to a half, so that the rest remains for
  // the program meanwhile: each byte then is read about twice. Earlier if the program writes so
  // fast that a compaction would come too late. False: it will not work the next time either.
  bool Look() override;
  Space Measure();
  bool Compact(uint64_t to_bytes, uint64_t limit_bytes);
  bool Drop(uint64_t to_bytes);
  // Gives up when the directory takes more than `limit_bytes`.
  Outcome Run(const std::vector<std::string>& words, uint64_t limit_bytes);

  const uint64_t size_bytes_;
  Space now_;
  double bytes_each_second_ = 0;  // its growth when it was last measured
  std::chrono::steady_clock::time_point measured_;
  uint64_t high_bytes_ = 0;
  double compacted_each_second_ = 5e6;  // bytes, by the last compaction; before it a guess
  unsigned too_slow_ = 0;               // compactions in a row
  unsigned drops_only_ = 0;             // looks for which no compaction is tried
  std::vector<std::string> instants_;   // that the last compaction kept

  // For the note.
  uint64_t most_bytes_ = 0;
  uint64_t most_past_bytes_ = 0;
  bool was_held_ = false;
  std::string failed_;
};

// The size that --ring sets, or an error.
util::Result<uint64_t> ParseRing(const std::string& text);

}  // namespace vramscope::cli
