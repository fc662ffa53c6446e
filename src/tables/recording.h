// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tables/rows.h"
#include "tables/string_table.h"
#include "util/status.h"

namespace vramscope::tables {

struct Session {
  std::string path;
  std::string name;      // --name, else the command's basename
  std::string version;   // of the vramscope that recorded
  int64_t begin_ns = 0;  // CLOCK_MONOTONIC, when the first process began
  int64_t end_ns = 0;
  // From when on all is there; before it, what lived at the peaks and since then (run --ring).
  int64_t history_ns = INT64_MIN;
  bool HasPast() const { return history_ns > begin_ns; }
  int64_t begin_wall_ns = 0;  // CLOCK_REALTIME at begin_ns
  bool finished = false;      // a single .vram; false: resolved from the live directory
  uint64_t event_count = 0;
  uint64_t allocation_count = 0;
  uint64_t file_bytes = 0;
};

// Every table but `allocations`, in memory. Row 0 of each dictionary is "none".
struct Tables {
  Tables();

  Session session;
  StringTable strings;
  std::vector<HostRow> hosts;
  std::vector<DeviceRow> devices;
  std::vector<ProcessRow> processes;
  std::vector<AccountRow> accounts;
  std::vector<ThreadRow> threads;
  std::vector<FrameRow> frames;
  std::vector<StackRow> stacks;
  std::vector<SourceRow> sources;  // by file and line
  std::vector<SiteRow> sites;
  std::vector<SegmentRow> segments;
  std::vector<CounterRow> counters;
  std::vector<StepRow> steps;  // by time
  std::vector<CheckpointRow> checkpointed;
  std::vector<ChangeRow> changes;  // by time
  std::vector<SharedRow> shared;
  std::vector<SampleRow> samples;  // by time
  std::vector<ProcessSampleRow> process_samples;
  std::vector<HostSampleRow> host_samples;  // by time
  std::vector<NvtxCounterRow> nvtx_counters;
  std::vector<NvtxSampleRow> nvtx_samples;  // by time
  std::vector<MarkRow> marks;               // by time
  std::vector<IterationRow> iterations;     // by process and number
  std::vector<PeakRow> peaks;               // one a device, in their order
  std::vector<OutOfMemoryRow> out_of_memory;
  std::vector<PhaseRow> phases;                 // by process and time
  std::vector<GraphRow> graphs;                 // by process and time
  std::vector<XlaOperationRow> xla_operations;  // by program, largest program first
  std::vector<LossRow> losses;
  std::vector<ViolationRow> violations;
  std::vector<NoteRow> notes;

  // Calls visit(std::vector<Row>&) for each of the vectors above, in the order of their numbers.
  template <class Self, class Visitor>
  static void ForEach(Self& self, Visitor&& visit) {
    visit(self.hosts);
    visit(self.devices);
    visit(self.processes);
    visit(self.accounts);
    visit(self.threads);
    visit(self.frames);
    visit(self.stacks);
    visit(self.sources);
    visit(self.sites);
    visit(self.segments);
    visit(self.counters);
    visit(self.steps);
    visit(self.checkpointed);
    visit(self.changes);
    visit(self.shared);
    visit(self.samples);
    visit(self.process_samples);
    visit(self.host_samples);
    visit(self.nvtx_counters);
    visit(self.nvtx_samples);
    visit(self.marks);
    visit(self.iterations);
    visit(self.peaks);
    visit(self.out_of_memory);
    visit(self.phases);
    visit(self.graphs);
    visit(self.xla_operations);
    visit(self.losses);
    visit(self.violations);
    visit(self.notes);
  }
};

// What many allocations of a frame have in common.
struct AllocationShape {
  uint64_t bytes = 0;
  uint64_t rounding_bytes = 0;
  uint32_t site = 0;
  uint32_t segment = 0;
};

// Some rows of `allocations`, by column: all vectors that were asked for have `rows` entries, but
// for `shapes`.
struct AllocationFrame {
  size_t rows = 0;
  std::vector<int64_t> begin_ns, end_ns, alloc_ns;
  std::vector<uint64_t> address, bytes, rounding_bytes;
  std::vector<uint32_t> site, segment;
  std::vector<uint32_t> shape;  // index in `shapes`
  std::vector<AllocationShape> shapes;
};

// Columns of an AllocationFrame, as bits.
enum AllocationColumns : uint32_t {
  kBeginNs = 1 << 0,
  kEndNs = 1 << 1,
  kAllocNs = 1 << 2,
  kAddress = 1 << 3,
  kBytes = 1 << 4,
  kRoundingBytes = 1 << 5,
  kSite = 1 << 6,
  kSegment = 1 << 7,
  kAllColumns = 0xff,
  // The four before this one as a shape, to do the same work once for all rows of a shape.
  kShape = 1 << 8,
};

// Facts about a frame that need no read of it. Allocations are in frames by their lifetime, so that
// an instant needs few frames: a frame of short-lived allocations spans little time, and one whose
// last allocation ended before the instant is not read.
struct FrameZone {
  uint64_t rows = 0;
  int64_t min_begin_ns = INT64_MAX;
  int64_t max_begin_ns = INT64_MIN;
  int64_t min_end_ns = INT64_MAX;
  int64_t max_end_ns = INT64_MIN;
  uint64_t accounts = UINT64_MAX;  // bit n: it may hold allocations of an account n modulo 64
  bool MayHoldAccount(AccountId account) const {
    return (accounts >> (account.value % 64) & 1) != 0;
  }
  bool MayHoldLiveAt(int64_t time_ns) const {
    return min_begin_ns <= time_ns && time_ns < max_end_ns;
  }
};

// A resolved recording: small tables in memory, allocations read as needed. Const use is
// thread-safe.
class Recording {
 public:
  virtual ~Recording() = default;
  const Tables& tables() const { return tables_; }
  std::string_view string(StringId id) const { return tables_.strings[id]; }
  virtual size_t frame_count() const = 0;
  virtual const FrameZone& zone(size_t frame) const = 0;
  // Reads the columns `wanted` (AllocationColumns); the others are left empty. An error names the
  // file and says that it is damaged.
  virtual util::Status Read(size_t frame, uint32_t wanted, AllocationFrame* out) const = 0;
  // It was resolved from a live directory of that size, not opened from a finished file.
  void SetResolvedInPlace(uint64_t live_bytes) {
    tables_.session.finished = false;
    tables_.session.file_bytes = live_bytes;
  }

 protected:
  Tables tables_;
};

// Whether NVML's figures are all that it is made of: its programs ran without the probe.
bool IsSampled(const Recording& recording);

// Where resolved allocations go, one at a time, in the order in which they end.
class AllocationSink {
 public:
  virtual ~AllocationSink() = default;
  virtual util::Status Add(const AllocationRow& row) = 0;
};

}  // namespace vramscope::tables
