// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "resolve/flat_map.h"
#include "resolve/page_index.h"
#include "resolve/records.h"
#include "resolve/slab.h"
#include "tables/ids.h"
#include "trace/trace.h"

// The ledger's state, by device, process, and pairs of both ("spaces").
namespace vramscope::resolve {

// A row whose bytes change by readings and not by allocations: driver-owned memory, pools, the
// baseline. Few, so each change is kept in a log, and the rows at any instant are its prefix.
struct SlowItem {
  trace::ProcessId process = trace::kNoProcess;
  trace::DeviceId device = trace::kNoDevice;
  uint32_t space = kNoIndex;
  uint32_t segment = kNoIndex;  // not a row: the bytes that this segment holds
  tables::SegmentId row;        // the segment's row; may be set where `segment` is not
  OwnerId owner;
  Part part = Part::kOtherDriver;
  bool bracketed = false;
  std::string trigger;  // "cuLaunchKernel name": who caused it
  trace::StringId api;
  trace::StackId stack;
  trace::StackId native;
  trace::ThreadId thread;
  uint64_t context = 0;
  int64_t alloc_ns = 0;
  int64_t bytes = 0;  // now
};
struct SlowChange {
  uint32_t item;
  int64_t bytes;
  int64_t time_ns;
};

// One NVML sample of a device and what the ledger said then. The ledger's value is an interval
// where calls were under way: [ledger - low, ledger + high].
struct DeviceSampleRecord {
  int64_t time_ns = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t used = 0;
  int64_t ledger = 0;
  int64_t low = 0;
  int64_t high = 0;
  uint64_t version = 0;
  uint32_t repeats = 0;  // readings just before it with the same figures, which were not written
  bool counted = false;  // a recorded process used the device: its residual says something
};
struct ProcessSampleRecord {
  int64_t time_ns = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t used = 0;
  int64_t ledger = 0;
  int64_t low = 0;
  int64_t high = 0;
};

// The launcher's clock and the program's are one clock read through two conversions: they agree to
// within this. A sample is taken at some moment of an interval that is wider by as much.
inline constexpr int64_t kClockErrorNs = 10'000;

// What a call may have moved before or after each of the samples that overlap it. Later samples
// begin later.
template <class Sample>
void WidenOverlapping(std::vector<Sample>& samples,
                      int64_t begin_ns,
                      int64_t end_ns,
                      int64_t bytes) {
  for (auto sample = samples.rbegin();
       sample != samples.rend() && sample->end_ns + kClockErrorNs > begin_ns; ++sample) {
    if (sample->begin_ns - kClockErrorNs >= end_ns)
      continue;
    (bytes > 0 ? sample->high : sample->low) += bytes > 0 ? bytes : -bytes;
  }
}

// A driver call and what it moved, for as long as a sample can overlap it.
struct CallUnderWay {
  int64_t begin_ns;
  int64_t end_ns;
  int64_t bytes;
};

// A call that may have moved memory without saying how much, waiting for the next reading.
struct OpenCall {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  trace::ProcessId process = trace::kNoProcess;
  Part part = Part::kOtherDriver;
  bool is_context_create = false;
  bool only_takes = false;  // never gives memory back
  // A context that the driver made by itself: its begin was seen, its end is the next reading of
  // its process.
  bool lasts = false;
  bool is_array = false;  // then `life` is the array's first
  uint64_t life = kNoLife;
  uint32_t holding = kNoIndex;
  trace::StringId api;
  trace::StringId name;
  trace::StackId stack;
  trace::StackId native;
  trace::ThreadId thread;
  uint64_t context = 0;
};

// An array whose price a reading changed.
struct ArrayPrice {
  trace::ProcessId process;
  uint32_t holding;
  uint64_t life;  // the first
  int64_t bytes;
};

// A reading and what it assigned, in case that a call which overlapped it turns up later.
struct PastReading {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  bool unclear = false;
  int64_t base_gap = 0;  // of the reading before it
  int64_t base_begin_ns = INT64_MAX;
  std::vector<OpenCall> calls;  // between that one and this one
  std::vector<SlowChange> assigned;
  std::vector<ArrayPrice> repriced;
};

// The telescoping series of readings of one device (see readings.cc).
struct ReadingSeries {
  bool has_base = false;
  int64_t base_gap = 0;  // reading - ledger, where everything is explained
  int64_t base_begin_ns = INT64_MAX;
  bool has_last = false;
  bool last_unclear = false;  // a call was under way while the last reading was taken
  int64_t last_begin_ns = 0;
  int64_t last_end_ns = 0;
  int64_t last_gap = 0;
  uint64_t last_used = 0;
  uint64_t last_version = 0;
  std::vector<OpenCall> before_last;  // calls between the base and the last reading
  std::vector<OpenCall> after_last;
  std::vector<SlowChange> assigned;  // what the last reading assigned, to be taken back if unclear
  std::vector<ArrayPrice> repriced;  // by the last reading, the same
  // Arrays without a price of their own, by their first life: see arrays.cc.
  struct WhichArray {
    trace::ProcessId process;
    uint32_t holding = kNoIndex;
  };
  std::map<uint64_t, WhichArray> estimated;
  std::vector<PastReading> past;  // the latest ones before the last
  bool HasUnclear() const {
    return last_unclear || std::any_of(past.begin(), past.end(),
                                       [](const PastReading& reading) { return reading.unclear; });
  }
  // Changes that no call explained, in case a long call turns up that spans them.
  struct Unexplained {
    int64_t from_ns;
    int64_t to_ns;
    int64_t bytes;
  };
  std::vector<Unexplained> unexplained;
  // NVML's figure and the readings may differ by a constant: learnt from the first pair with
  // nothing between them, committed when the next event proves that nothing was under way.
  bool has_offset = false;
  int64_t offset = 0;
  bool offset_pending = false;
  int64_t pending_offset = 0;
  int64_t pending_offset_until_ns = 0;
  // Where the first assignment stands in the slow log: it was made without knowing the offset.
  bool first_assigned_from_sample = false;
  size_t first_log_index = 0;
  int64_t first_assigned_ns = 0;
  // The reading that it was seen with, what the one before said, and whether both say the same.
  int64_t offset_reading_ns = 0;
  int64_t offset_before = 0;
  bool offset_seen_twice = false;
  uint64_t contexts_not_measured = 0;
};

// Part of a row that calls of several processes made together: nothing until NVML's figure of the
// process, in a quiet moment, says how much.
struct JointShare {
  size_t holder_log_index = 0;  // in the slow log: the row that has the bytes of all
  size_t log_index = 0;         // this process's row
};

// A time in which a process had none of its memory on the device: the driver had moved all of it to
// host memory.
struct Absence {
  int64_t from_ns = 0;
  int64_t to_ns = kNever;
};

// What a reading priced of a process's calls, until NVML's figure of the process agrees: somebody
// else's memory may be in it, or somebody's free.
struct Bracket {
  int64_t begin_ns = 0;    // of the first call
  int64_t reading_ns = 0;  // when the reading behind them began
  int64_t end_ns = 0;
  bool sank = false;     // nothing showed of calls that only take, or what went was in no row
  size_t log_index = 0;  // in the slow log: the process's row, of no bytes where it got none
  std::optional<size_t> others_log_index;  // the same for what turns out to be other processes'
  size_t taken_begin = 0;                  // what it took back from rows
  size_t taken_end = 0;
};

struct DeviceState {
  trace::DeviceId id;
  trace::DeviceKind kind = trace::DeviceKind::kGpu;
  int64_t total = 0;     // of all rows; signed, because `before recording` is known only at the end
  uint64_t version = 0;  // counts changes of `total` by the driver's doing
  int64_t away = 0;      // of processes that are away: in no other figure here
  uint32_t active_processes = 0;
  bool baseline_frozen = false;
  int64_t last_end_ns = INT64_MIN;  // of a process that used it
  uint32_t baseline_item = kNoIndex;
  std::vector<DeviceSampleRecord> samples;
  std::vector<CallUnderWay> calls;
  ReadingSeries readings;
  bool rm_pending = false;          // of any of its spaces
  int64_t stranger_ns = INT64_MIN;  // when NVML last listed a process that is not recorded
};

// A process on a device.
struct Space {
  trace::ProcessId process;
  trace::DeviceId device;
  // Of its rows, on the device or away; `total` as NVML counts, without RM-internal memory.
  int64_t total = 0;
  bool away = false;
  std::vector<Absence> absences;
  int64_t first_ns = 0;
  int64_t end_ns = INT64_MAX;
  FlatMap block_index;
  Slab<Block> blocks;
  uint64_t block_bytes = 0;
  uint32_t default_segment = kNoIndex;
  uint32_t program_segment = kNoIndex;  // the same for blocks of the program's own pools
  uint32_t totals_item = kNoIndex;      // held bytes of the default segment, from AllocatorTotals
  uint32_t before_item = kNoIndex;
  int64_t before_minimum = 0;   // lowest value that `before recording` had by what was known then
  bool before_settled = false;  // by NVML's figure
  int64_t before_offset = 0;    // what it must have been at the start for that not to be negative
  bool totals_seen = false;
  bool driver_events = false;
  bool blocks_seen = false;
  // Slabs of small driver allocations: live ones by 2 MiB page; the segment that they make, and the
  // slow item that says what it holds.
  FlatMap slab_pages;
  uint64_t small_bytes = 0;
  int64_t slab_slack = 0;
  tables::SegmentId slab_segment;
  uint32_t slab_item = kNoIndex;
  uint32_t graph_used_item = kNoIndex;
  uint32_t graph_cached_item = kNoIndex;
  uint32_t rm_item = kNoIndex;
  uint32_t context_item = kNoIndex;
  size_t context_log_index = 0;  // where the log says what it took; RM-internal stands behind it
  uint32_t live_contexts = 0;
  std::optional<JointShare> joint_share;
  // What NVML's device figure has and its per-process figure has not, waiting for proof that no
  // call was under way.
  bool rm_wanted = false;
  bool rm_pending = false;
  bool rm_pending_wanted = false;
  bool rm_pending_had_offset = false;
  int64_t rm_pending_total = 0;
  int64_t rm_pending_used = 0;
  int64_t rm_pending_until_ns = 0;
  // Since NVML's figure last agreed with `total`, but for this gap (see joint_shares.cc).
  std::vector<Bracket> brackets;
  int64_t figure_gap = 0;
  int64_t agreed_ns = INT64_MIN;
  std::vector<ProcessSampleRecord> samples;

  int64_t on_device() const { return away ? 0 : total; }
};

struct Reservation {
  uint64_t size = 0;
  std::vector<uint32_t> segments;  // one for each device whose memory was mapped into it
  bool implicit = false;           // made of mappings whose reservation was not seen
};

struct ProcessState {
  Slab<Holding> holdings;
  // Addresses, arrays, handles and registered memory come from different number spaces.
  std::array<FlatMap, 4> holding_index;
  FlatMap mapping_index;
  FlatMap pools;                            // pool handle -> segment
  std::map<uint64_t, uint32_t> pool_names;  // by handle, of pools that were not seen yet
  PageIndex pages;
  std::map<uint64_t, Reservation> reservations;
  std::map<int16_t, uint64_t> figures;  // NVML's latest, by device
  bool began_late = false;              // it was under way when its recording began
  bool seen = false;
  bool torn_down = false;
  bool ended = false;
  bool away = false;  // from one of its devices at least
  uint32_t modules_gone = 0;
  int64_t teardown_ns = 0;
  int64_t exit_ns = 0;  // the last instant before its teardown or its end; 0: not seen yet
  int64_t last_ns = 0;
};

}  // namespace vramscope::resolve
