// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trace/file/live_directory.h"
#include "trace/file/live_file.h"
#include "trace/live/scan.h"
#include "trace/live/stream_source.h"
#include "trace/python/lines.h"
#include "trace/trace.h"
#include "util/file.h"

namespace vramscope::trace {

// A recording read from its live directory, whether its program still runs or not.
//
//   NAME.vram.d/*.vrl   chunks of each thread
//     1. ScanFiles      every chunk once, on some threads: dictionaries, clocks, devices, exits
//     2. ForEachEvent   every chunk again: streams -> one time line -> batches of Event
//
// OpenTrace() makes it. Opening fills the dictionaries, which never change afterwards, so an event
// has ids alone. Each ForEachEvent() reads the files anew; memory holds a batch. Damage is skipped
// and counted in losses(), never an error, and nothing of a file is believed without a bound.
class LiveTrace : public Trace {
 public:
  // `path` is what the user asked for, `directory` where the files are.
  static util::Result<std::unique_ptr<Trace>> Open(const std::string& path,
                                                   const std::string& directory,
                                                   OpenOptions options = {});
  // The same over files already opened.
  static util::Result<std::unique_ptr<Trace>> FromFiles(const std::string& path,
                                                        std::vector<LiveFile> files,
                                                        const SessionJson& session,
                                                        LossCounter losses,
                                                        OpenOptions options = {});

  // The compaction of a ring reads the files themselves. Event::source counts the streams of all of
  // them, in this order.
  const std::vector<LiveFile>& files() const { return files_; }
  const FileContext& context(size_t file) const { return contexts_[file]; }
  // Later events were not read.
  int64_t until_ns() const { return until_ns_; }
  bool is_running(uint32_t pid) const {
    return std::find(running_.begin(), running_.end(), pid) != running_.end();
  }

  std::string_view SourceLine(StringId file, uint32_t line) const override;
  util::Status ForEachEvent(const EventSink& sink) override;
  bool IsFollowed() const override { return at_present_ != nullptr; }

 private:
  struct Exit {
    uint32_t pid;
    int64_t time_ns;
    std::optional<int> status;
  };

  LiveTrace() = default;
  util::Status ScanFiles(const std::string& path, LossCounter* losses, OpenOptions options);
  // Reads what the files have more. False: the recording has to be opened anew.
  bool Advance(const OpenOptions::Present& present);
  void NameCells(const Cells& cells);
  void BuildClocks();
  void BuildDevices();
  DeviceId AddDevice(int64_t local, const LocalDevice& described, bool from_launcher);
  void AddSampledProcesses();
  void AddHostSamples();
  void BuildProcesses();
  bool GoesOn(ProcessId process, bool has_exit, int64_t end_ns) const;
  std::vector<Exit> Exits() const;
  void BuildSession(const std::string& path, const SessionJson& session);

  util::UniqueFd lock_;          // shared: the files get no holes while they are read
  std::vector<LiveFile> files_;  // the launcher's first, then the processes in order of their begin
  std::vector<FileScan> scans_;
  std::vector<TickClock> clocks_;
  std::vector<FileContext> contexts_;
  std::map<uint32_t, std::vector<std::pair<int64_t, ProcessId>>> processes_by_pid_;
  std::vector<Event> process_ends_;                         // in time order
  int64_t until_ns_ = std::numeric_limits<int64_t>::max();  // later events are left out
  uint64_t until_ticks_ = 0;                                // 0: that is not known
  std::vector<uint32_t> running_;                           // by pid: processes that still ran then
  SourceLines source_lines_;
  // To follow a recording.
  std::function<std::optional<OpenOptions::Present>()> at_present_;
  std::string directory_;
  LossCounter later_losses_;
  NativeSymbols symbols_;
  ScanTables scan_tables_{};
  std::vector<std::unique_ptr<GrowingScan>> growing_;
};

}  // namespace vramscope::trace
