// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "format/records.h"
#include "pipeline/survivors.h"
#include "record/live_file_writer.h"
#include "record/sample/nvml.h"
#include "record/watch/watches.h"
#include "record/watch/worker.h"

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

// Decides which readings of one device's memory are worth a record. A reading that repeats the one
// before it is held back. When the figure changes, the last one held back is written first, with
// its own stamps. So the file shows between which two readings the change happened:
//
//   read      100 100 100 100 250 250
//   written   100         100 250          and one a `keep_every_ns` in any case
class SampleFilter {
 public:
  explicit SampleFilter(int64_t keep_every_ns) : keep_every_ns_(keep_every_ns) {}

  // Calls `write(sample)` for each record that is due.
  template <class Writer>
  void Add(const format::DeviceSample& sample, Writer&& write) {
    const bool changed = !has_last_ || !SameFigures(last_, sample);
    if (changed) {
      Flush(write);
      Write(sample, write);
    } else if (static_cast<int64_t>(sample.begin - written_ns_) >= keep_every_ns_) {
      Write(sample, write);
    } else {
      ++held_back_;
    }
    last_ = sample;
    has_last_ = true;
  }

  // For a reading that came late: between it and the one before nothing was seen, and both are
  // written.
  template <class Writer>
  void AddLate(const format::DeviceSample& sample, Writer&& write) {
    Flush(write);
    Write(sample, write);
    last_ = sample;
    has_last_ = true;
  }

  // Writes the last reading if it was held back.
  template <class Writer>
  void Flush(Writer&& write) {
    if (held_back_ == 0)
      return;
    --held_back_;
    Write(last_, write);
  }

 private:
  template <class Writer>
  void Write(format::DeviceSample sample, Writer&& write) {
    sample.repeats = held_back_;
    held_back_ = 0;
    written_ns_ = sample.begin;
    write(sample);
  }

  static bool SameFigures(const format::DeviceSample& a, const format::DeviceSample& b) {
    return a.used == b.used && a.free == b.free && a.reserved == b.reserved && a.total == b.total;
  }

  const int64_t keep_every_ns_;
  format::DeviceSample last_;
  bool has_last_ = false;
  uint64_t written_ns_ = 0;
  uint64_t held_back_ = 0;  // readings like the last record that were not written
};

// Decides when the list of processes on a device is read. The query walks every allocation of every
// process under driver locks that the programs need too (milliseconds on a busy machine). So the
// list is read once a second, sooner after a large change of the device's figure, at most 5 times a
// second, and for at most 1/400 of the time.
class ProcessQueryPacer {
 public:
  bool IsDue(int64_t now_ns, uint64_t device_used_bytes) const;
  void Queried(int64_t now_ns, int64_t duration_ns, uint64_t device_used_bytes);

 private:
  int64_t last_ns_ = 0;
  int64_t min_gap_ns_ = 0;
  uint64_t used_bytes_ = 0;
  bool queried_ = false;
};

// How well readings kept to their times, which are a period apart.
struct SamplingPace {
  uint64_t readings = 0;
  uint64_t late = 0;      // of them, a period or more behind their time
  uint64_t left_out = 0;  // times that had passed with the reading before
  int64_t latest_ns = 0;  // the longest delay of a sample

  void Add(int64_t behind_ns, int64_t period_ns);
  // How many periods from one time to the next that is still to come.
  uint64_t Next(int64_t behind_ns, int64_t period_ns);
};

struct SamplerOptions {
  int64_t period_ns = 10'000'000;
  std::vector<size_t> gpus;               // positions in the monitor's list; empty: all
  ProcessWatch* watch = nullptr;          // receives the processes that use a GPU
  SampledProcesses* processes = nullptr;  // of a recording without the probe
};

// Reads NVML on a thread of its own and writes what it says to the launcher's live file. Between
// Start() and Stop() the file belongs to that thread.
class Sampler {
 public:
  Sampler(GpuMonitor& monitor, LiveFileWriter& file, SamplerOptions options);
  ~Sampler();

  // Writes the devices and two samples of each, then continues in the background.
  void Start();
  // A last sample of everything, and the thread is gone. Idempotent.
  void Stop();
  // "" or why it ended early. After Stop().
  const std::string& failure() const { return worker_.failure(); }
  // After Stop().
  const SamplingPace& pace() const { return pace_; }

 private:
  void SampleDevices(bool late = false);
  void SampleProcesses(size_t gpu);
  void WriteProcess(size_t gpu, uint64_t begin, uint64_t end, const NvmlProcess& process);
  void Loop();

  GpuMonitor& monitor_;
  LiveFileWriter& file_;
  const SamplerOptions options_;
  std::vector<size_t> gpus_;  // those that are sampled; the rest is by position among all
  std::vector<SampleFilter> filters_;
  std::vector<ProcessQueryPacer> pacers_;
  std::vector<NvmlProcess> processes_;
  std::vector<std::vector<pid_t>> listed_;  // by GPU: as the last list had them
  SamplingPace pace_;
  Worker worker_;
};

}  // namespace vramscope::cli
