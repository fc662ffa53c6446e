// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/enums.h"
#include "tables/dictionaries.h"
#include "trace/event.h"
#include "util/status.h"

namespace vramscope::trace {

struct Device {
  tables::DeviceKind kind = tables::DeviceKind::kGpu;
  int32_t index = 0;  // NVML's for GPUs; CUDA's ordinal where NVML was not there; -1 cpu, -2 host
  std::string uuid;   // "GPU-..." or ""
  std::string name;
  uint64_t total_bytes = 0;  // 0: not known
};

struct Process {
  uint32_t pid = 0;
  uint32_t parent_pid = 0;
  std::optional<int32_t> rank;  // RANK of the environment, where there is one
  bool unnamed = false;         // it has a PyTorch whose tensors the probe cannot name
  std::string command;          // argv joined by spaces
  std::string executable;
  int64_t start_ns = 0;
  int64_t end_ns = 0;      // last event
  bool is_forked = false;  // it began with a copy of its parent's memory
  bool closed_cleanly = false;
  std::optional<int> wait_status;
};

struct Thread {
  ProcessId process = kNoProcess;
  uint32_t tid = 0;
  std::string name;
};

struct Loss {
  std::string name;
  uint64_t count = 0;
  uint64_t bytes = 0;
};

// Counts what is missing, by the names of format/losses.def.
class LossCounter {
 public:
  void Add(format::Loss loss, uint64_t count, uint64_t bytes = 0) {
    AddRaw(static_cast<uint64_t>(loss), count, bytes);
  }
  // Losses of newer writers keep their row under the name that this version has for them.
  void AddRaw(uint64_t loss, uint64_t count, uint64_t bytes) {
    if (count == 0 && bytes == 0)
      return;
    Sum& sum = sums_[loss];
    sum.count += count;
    sum.bytes += bytes;
  }
  std::vector<Loss> Rows() const {
    std::vector<Loss> rows;
    for (const auto& [loss, sum] : sums_)
      rows.push_back({format::LossName(loss), sum.count, sum.bytes});
    return rows;
  }

 private:
  struct Sum {
    uint64_t count = 0;
    uint64_t bytes = 0;
  };
  std::map<uint64_t, Sum> sums_;
};

// Host memory of all processes together: format::HostSample.
struct HostSample {
  int64_t time_ns = 0;
  uint64_t processes = 0;
  uint64_t resident_bytes = 0;
  uint64_t shared_bytes = 0;
  uint64_t largest_pid = 0;
  uint64_t largest_bytes = 0;
  uint64_t limit_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t kills = 0;
};

// The folder for XLA's dumps in a live directory.
inline constexpr char kXlaDumpFolder[] = "xla";

struct SessionInfo {
  std::string path;
  std::string name;      // --name, else the command's basename
  std::string version;   // of the vramscope that recorded
  std::string host;      // its name; "": not known
  int64_t start_ns = 0;  // CLOCK_MONOTONIC, when the first process began
  int64_t end_ns = 0;
  int64_t start_wall_ns = 0;  // CLOCK_REALTIME at start_ns
  uint64_t event_count = 0;   // 0 until ForEachEvent has run once
  uint64_t file_bytes = 0;
  // For a ring: the start of its complete history. Before it only what lived at chosen instants is.
  std::optional<int64_t> history_ns = {};
  // The folder into which XLA wrote its dumps (run --xla-hlo); "": none, or it may not be read.
  std::string xla_dumps;
  bool sampled = false;  // NVML's figures are all there is: the programs ran without the probe
  std::vector<std::pair<std::string, std::string>> notes;  // key, value; what `info` prints
};

// An opened recording: tables in memory, events streamed. Not thread-safe; const use is.
class Trace {
 public:
  virtual ~Trace() = default;

  const SessionInfo& session() const { return session_; }
  std::span<const Device> devices() const { return devices_; }
  std::span<const Process> processes() const { return processes_; }
  std::span<const Thread> threads() const { return threads_; }  // index 0: no thread
  std::span<const Loss> losses() const { return losses_; }
  std::span<const HostSample> host_samples() const { return host_samples_; }  // by time

  // Complete and at rest before the first event. Functions of native frames are demangled symbols,
  // or "0x..." if there is none.
  const tables::Dictionaries& dictionaries() const { return dictionaries_; }
  std::string_view string(StringId id) const { return dictionaries_.text(id); }
  const tables::StackRow& stack(StackId id) const { return dictionaries_.stack(id); }
  const tables::FrameRow& frame(FrameId id) const { return dictionaries_.frame(id); }

  // Text of a source line if it was bundled, else "".
  virtual std::string_view SourceLine(StringId file, uint32_t line) const = 0;

  // The batch's contents are not used afterwards. The sink may swap the buffer.
  using EventSink = std::function<void(std::vector<Event>& batch)>;
  // Streams every event of all processes in time order, in batches. Can be called again. Damage is
  // skipped and counted in losses(), which is complete after the first full pass.
  virtual util::Status ForEachEvent(const EventSink& sink) = 0;
  // ForEachEvent() needs the thread that calls it: OpenOptions::at_present.
  virtual bool IsFollowed() const { return false; }

 protected:
  Trace() : threads_(1) {}

  SessionInfo session_;
  std::vector<Device> devices_;
  std::vector<Process> processes_;
  std::vector<Thread> threads_;
  std::vector<Loss> losses_;
  std::vector<HostSample> host_samples_;
  tables::Dictionaries dictionaries_;
};

// The first bytes of every finished file, in all versions.
inline constexpr char kFinishedMagic[8] = {'V', 'R', 'A', 'M', 'S', 'C', 'O', 'P'};

struct OpenOptions {
  // Looks up the functions behind the native frames, which opens every binary that they are in.
  // Without, functions are "0x...".
  bool native_names = true;
  // For a recording under way: CLOCK_MONOTONIC before it was opened, and the processes that run
  // then. Threads continue to write while their files are read one after the other. So later events
  // are left out: the result is a consistent snapshot in which these processes have not ended.
  std::optional<int64_t> until_ns = {};
  uint64_t until_ticks = 0;  // the same instant on this machine's counter
  std::vector<uint32_t> running = {};
  // To follow it: ForEachEvent() calls this after the events of `until_ns`, and reads on up to the
  // instant that it returns, or ends if there is none. It also ends, with an error, where the
  // recording has to be opened anew: it has another process or device.
  struct Present {
    int64_t ns = 0;
    uint64_t ticks = 0;  // as of `until_ticks`
  };
  std::function<std::optional<Present>()> at_present = {};
};

// Opens a live directory NAME.vram.d. NAME.vram means the same if that file does not exist. Errors
// name the path and say whether it is missing, foreign, newer, or damaged beyond use.
util::Result<std::unique_ptr<Trace>> OpenTrace(const std::string& path, OpenOptions options = {});

}  // namespace vramscope::trace
