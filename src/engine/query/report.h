// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/trace.h"
#include "util/status.h"

// The answer to "who has the memory at an instant", in the shape that every writer prints: it
// mirrors the JSON schema vramscope.report/1 of docs/REPORT_SCHEMA.md, plus what only people read.
namespace vramscope::engine {

// Dimensions by which rows can be grouped and filtered, by their contract names.
enum class Dimension : uint8_t {
#define VRAMSCOPE_DIMENSION(name, text) k##name,
#include "engine/query/dimensions.def"
};
const char* DimensionName(Dimension dimension);
// The dimension of that name, or an error that lists the names that exist.
util::Result<Dimension> ParseDimension(const std::string& name);

struct Instant {
  enum class Kind : uint8_t {
    kPeak,
    kEnd,
    kSeconds,
    kMonotonic,
    kIteration,
    kMark
  } kind = Kind::kPeak;
  int64_t time_ns = 0;  // kSeconds: from the start; kMonotonic: absolute
  int64_t iteration = 0;
  std::string mark;
};
// `peak`, `end`, `SECONDS`, `@NS`, `iter:N`, `mark:NAME`.
util::Result<Instant> ParseInstant(const std::string& text);

struct ReportQuery {
  Instant at;
  std::vector<Dimension> by;  // empty: the ledger's levels
  struct Where {
    Dimension dimension;
    std::string value;
  };
  std::vector<Where> where;
  uint64_t top = 0;  // 0: all rows
};

struct DeviceReport {
  trace::DeviceId device;
  int32_t index = 0;
  trace::DeviceKind kind = trace::DeviceKind::kGpu;
  std::string uuid, name;
  std::optional<uint64_t> total_bytes;
  // NVML's device figure: the sample nearest to the instant of those taken while the ledger stood
  // as it does here, or at the same total; empty where there is none.
  std::optional<uint64_t> nvml_bytes;
  uint64_t ledger_bytes = 0;              // sum of this device's rows
  std::optional<int64_t> residual_bytes;  // nvml - ledger
  int64_t in_transit_bytes =
      0;                // of driver calls under way at the sample; part of the ledger's rows
  std::string at_kind;  // "peak", "end", ...
  int64_t at_ns = 0;    // CLOCK_MONOTONIC
  std::optional<int64_t> at_iteration;
};

struct ProcessReport {
  trace::DeviceId device;
  trace::ProcessId process;
  uint32_t pid = 0;
  std::optional<int32_t> rank;
  std::string command;
  std::optional<uint64_t> nvml_bytes;
  uint64_t ledger_bytes = 0;
  std::optional<int64_t> residual_bytes;
};

struct ReportRow {
  trace::DeviceId device;
  std::optional<uint32_t> pid;  // empty: bytes of no recorded process
  std::vector<std::string>
      path;  // one element per --by dimension, else the ledger's levels below process
  uint64_t bytes = 0;
  uint64_t count = 0;  // allocations, or blocks; 0 for slack rows
};

struct Invariant {
  std::string name;
  bool holds = true;
  std::string detail;
};

// One stack and what it holds, for the "top stacks" and "top lines" tables.
struct TopEntry {
  trace::DeviceId device;
  trace::StackId stack;  // for stacks
  std::string place;   // for lines: "train.py:42 in forward"; for stacks: the innermost user frame
  std::string source;  // text of the line where it was bundled
  uint64_t bytes = 0;
  uint64_t count = 0;
};

// How well the ledger explains NVML over the whole run, per device.
struct ResidualSummary {
  trace::DeviceId device;
  uint64_t samples = 0;
  uint64_t samples_in_transit = 0;  // explained only by the interval that calls under way allow
  int64_t worst_bytes = 0;          // largest |residual| outside what is in transit, with its sign
  int64_t worst_at_ns = 0;
  uint64_t p99_bytes = 0;        // of |residual|
  uint64_t bracketed_bytes = 0;  // of the ledger at its peak: priced by readings, not by size
  uint64_t ledger_peak_bytes = 0;
};

struct Report {
  std::vector<DeviceReport> devices;
  std::vector<ProcessReport> processes;
  std::vector<ReportRow> rows;  // largest first within a device
  std::vector<trace::Loss> losses;
  std::vector<Invariant> invariants;
  std::vector<ResidualSummary> residuals;
  std::vector<TopEntry> top_stacks;  // at the instant, by bytes
  std::vector<TopEntry> top_lines;   // at the instant, by bytes
  std::vector<TopEntry> top_churn;   // over the whole recording: bytes and count allocated by line
};

// One line of history for the timeline: a group's bytes between two instants, at some level of
// detail.
struct Timeline {
  trace::DeviceId device;
  std::vector<std::string> groups;  // bands, bottom first
  std::vector<int64_t> time_ns;     // bucket starts, ascending
  std::vector<std::vector<uint64_t>>
      peak;  // [group][bucket]: the group's bytes at the bucket's highest instant
  std::vector<std::pair<int64_t, uint64_t>> nvml;  // samples: time, used bytes
};

// The life of one allocation or block, for the page's "who was live then" and for exports.
struct Life {
  trace::DeviceId device;
  trace::ProcessId process;
  uint64_t address = 0;
  uint64_t bytes = 0;
  int64_t alloc_ns = 0;
  int64_t free_ns = 0;   // INT64_MAX: never freed
  trace::StackId stack;  // Python, else native
  trace::StringId api;
  uint32_t path = 0;  // index into Lives::paths: the ledger's levels below process
};
struct Lives {
  std::vector<std::vector<std::string>> paths;
  std::vector<Life> lives;  // largest bytes x duration first, cut at the limit asked for
  uint64_t left_out_count = 0;
  uint64_t left_out_peak_bytes = 0;  // highest sum of those left out, live at once
};

// A named instant of the recording.
struct Mark {
  int64_t time_ns = 0;
  std::string name;
};

// Everything that can be asked of an opened trace. Makes at most two passes over the events and
// keeps what later questions need. Not thread-safe.
class Analysis {
 public:
  // `progress` is called with the share done, 0 to 1; may be empty.
  static util::Result<std::unique_ptr<Analysis>> Create(
      std::unique_ptr<trace::Trace> trace,
      const std::function<void(double)>& progress = {});
  virtual ~Analysis() = default;
  virtual const trace::Trace& trace() const = 0;
  virtual util::Result<Report> MakeReport(const ReportQuery& query) = 0;
  // `buckets` is the level of detail; bands are the ledger's categories of leaves.
  virtual util::Result<std::vector<Timeline>> MakeTimelines(size_t buckets) = 0;
  virtual util::Result<Lives> MakeLives(size_t limit) = 0;
  // Streams every allocation as a Life in order of allocation; what `export --to csv|json` prints.
  virtual util::Status ForEachLife(const std::function<void(const Life&)>& sink) = 0;
  virtual const std::vector<std::string>& LifePath(uint32_t path) const = 0;
  // In time order.
  virtual std::vector<Mark> Marks() const { return {}; }
};

// The value of a dimension for display, from a stack: helpers shared by writers.
std::string FormatFrame(const trace::Trace& trace, trace::FrameId frame);

}  // namespace vramscope::engine
