// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "format/enums.h"
#include "format/records.h"
#include "tables/dictionaries.h"
#include "trace/file/live_file.h"
#include "trace/file/tick_clock.h"
#include "trace/live/converter.h"
#include "trace/live/definitions.h"
#include "trace/symbolize/native_symbols.h"
#include "trace/trace.h"

namespace vramscope::trace {

// Shared by the first walk over a stream and the skim of a chunk. Both ignore the resulting events:
// they collect which devices, stacks and texts occur, and a skim must leave the same state as a
// walk. `Pass` has AddDevice(int64_t local) besides what a Converter asks for.
template <class Pass>
class FirstLook : public Converter<Pass> {
 public:
  using Converter<Pass>::On;

  DeviceId Device(int64_t local) {
    if (local != last_device_)
      pass().AddDevice(local);
    last_device_ = local;
    return kNoDevice;
  }
  ThreadId thread() const { return {}; }
  StringId scope() const { return {}; }
  ProcessId process() const { return kNoProcess; }
  ProcessId ProcessOf(uint64_t, int64_t) const { return kNoProcess; }

  // Nearly all records are one of these two.
  bool On(const format::BlockAlloc& r, Event*) {
    pass().Ns(r.time);
    Device(r.device);
    pass().Python(r.stack);
    pass().Native(r.native);
    return true;
  }
  bool On(const format::BlockFree& r, Event*) {
    pass().Ns(r.time);
    Device(r.device);
    return true;
  }
  bool On(const format::Alloc& r, Event* event) {
    // Overflow memory belongs to the host, although it replaces memory of the device that it names.
    if (r.kind == static_cast<uint64_t>(format::MemoryKind::kOverflow))
      Device(format::kHostDevice);
    return Converter<Pass>::On(r, event);
  }
  bool On(const format::PastOrigin& r, Event*) {
    pass().Python(r.forward);
    return false;
  }
  bool On(const format::ScopeIs&, Event*) { return false; }

 protected:
  // The device before a gap is not valid after it.
  void ForgetDevice() { last_device_ = format::kNoDevice; }

 private:
  Pass& pass() { return static_cast<Pass&>(*this); }

  int64_t last_device_ = format::kNoDevice;
};

// The part of the first pass that does not depend on earlier chunks: nearly all chunks of a long
// recording define nothing, and are scanned in parallel.

// The results of the first pass for a chunk without definitions.
struct ChunkSkim {
  struct Used {
    uint64_t id = 0;
    uint64_t count = 0;
  };
  bool is_told = false;  // if false, the chunk must be walked in its turn
  uint64_t event_count = 0;
  std::optional<uint64_t> last_ticks;  // of the latest event
  std::vector<TickClock::Anchor> anchors;
  std::vector<format::Bytes> texts;  // that events bring with them, in order
  std::vector<int64_t> devices;
  std::vector<Used> python_stacks, native_stacks;
};

// One result a chunk, computed by this many threads.
std::vector<ChunkSkim> SkimChunks(const LiveFile& file,
                                  std::span<const ChunkRef> chunks,
                                  size_t workers);

// The first pass over a live file.

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

// A process that only NVML reports.
struct SampledProcess {
  uint64_t ticks = 0;
  uint32_t pid = 0;
  uint32_t parent_pid = 0;
  std::string command;
  std::string executable;
};

// The results of the first pass for one file; later passes need only this and the file.
struct FileScan {
  std::vector<DefinitionLog> logs;  // one a stream
  std::vector<TickClock::Anchor> anchors;
  std::map<int64_t, LocalDevice> devices;  // every number used, described or not
  std::vector<std::pair<std::string, std::string>> runtime;
  std::vector<ExitRecord> exits;
  std::vector<SampledProcess> sampled;
  std::vector<std::pair<uint64_t, HostSample>> host_samples;  // by ticks
  std::map<uint32_t, uint64_t> listed;  // by pid: ticks at which NVML last had a figure of it
  uint64_t event_count = 0;
  uint64_t last_ticks = 0;             // of the latest event; the header's start if there is none
  std::optional<uint64_t> past_ticks;  // where a ring's history begins
};

// The tables of the whole Trace, which all scans fill.
struct ScanTables {
  tables::Dictionaries* dictionaries;
  std::vector<Thread>* threads;
  std::map<std::pair<uint16_t, uint32_t>, uint32_t> thread_ids;  // by process and tid, the latest
  LossCounter* losses;
  NativeSymbols* symbols;  // null: native functions stay without names

  // The entry of a thread. A known thread without a name gets it. A known thread with another name
  // is another thread (the kernel reuses numbers).
  ThreadId AddThread(ProcessId process, uint32_t tid, std::string_view name);
};

// The first pass over a file that grows.
class GrowingScan {
 public:
  GrowingScan(const LiveFile& file, ProcessId process, ScanTables* tables, FileScan* scan);
  ~GrowingScan();

  // Adds what the file has more than at the last call.
  void Continue();

 private:
  class Scanner;

  std::unique_ptr<Scanner> scanner_;
};

// The result does not depend on the number of threads.
FileScan ScanFile(const LiveFile& file, ProcessId process, ScanTables* tables, size_t workers);

}  // namespace vramscope::trace
