// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tables/dictionaries.h"
#include "trace/file/live_file.h"
#include "trace/file/tick_clock.h"
#include "trace/live/definitions.h"
#include "trace/loss_counter.h"
#include "trace/symbolize/native_symbols.h"
#include "trace/trace.h"

// The first pass over a live file.
namespace vramscope::trace {

struct LocalDevice {
  uint64_t total_bytes = 0;
  std::string uuid;
  std::string name;
};

struct ExitRecord {
  uint64_t ticks = 0;
  uint32_t pid = 0;
  std::optional<int> status;
};

// A process that NVML alone tells of.
struct SampledProcess {
  uint64_t ticks = 0;
  uint32_t pid = 0;
  uint32_t parent_pid = 0;
  std::string command;
  std::string executable;
};

// What the first pass learns about one file; later passes need no more than this and the file.
struct FileScan {
  std::vector<DefinitionLog> logs;  // one a stream
  std::vector<TickClock::Anchor> anchors;
  std::map<int64_t, LocalDevice> devices;  // every number used, described or not
  std::vector<std::pair<std::string, std::string>> runtime;
  std::vector<ExitRecord> exits;
  std::vector<SampledProcess> sampled;
  std::map<uint32_t, uint64_t> listed;  // by pid: ticks at which NVML last had a figure of it
  uint64_t event_count = 0;
  uint64_t last_ticks = 0;  // of the latest event; the header's start where there is none
  std::optional<uint64_t> past_ticks;  // where a ring's history begins
};

// The tables of the whole Trace, which all scans fill.
struct ScanTables {
  tables::Dictionaries* dictionaries;
  std::vector<Thread>* threads;
  std::map<std::pair<uint16_t, uint32_t>, uint32_t> thread_ids;  // by process and tid, the latest
  LossCounter* losses;
  NativeSymbols* symbols;  // null: native functions stay without names

  // The entry of a thread. One that was known without a name gets it; a known thread under another
  // name is another thread (the kernel uses numbers anew).
  ThreadId AddThread(ProcessId process, uint32_t tid, std::string_view name);
};

// By so many threads; what comes out is the same.
FileScan ScanFile(const LiveFile& file, ProcessId process, ScanTables* tables, size_t workers);

}  // namespace vramscope::trace
