// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "query/dimensions/overflow.h"
#include "tables/recording.h"
#include "util/status.h"

// The answer to "who has the memory at an instant", in the shape that every writer prints: it
// mirrors the JSON schema vramscope.report/1 of docs/REPORT_SCHEMA.md, plus what only people read.
namespace vramscope::query {

// Dimensions by which rows can be grouped and filtered, by their contract names.
enum class Dimension : uint8_t {
#define VRAMSCOPE_DIMENSION(name, text) k##name,
#include "query/dimensions/dimensions.def"
};
inline constexpr size_t kDimensionCount = static_cast<size_t>(Dimension::kLifetime) + 1;
const char* DimensionName(Dimension dimension);
// The dimension of that name, or an error that lists the names that exist.
util::Result<Dimension> ParseDimension(const std::string& name);
// Adds the dimension of that name; an error where it is there already.
util::Status AddDimension(const std::string& name, std::vector<Dimension>* dimensions);

struct Instant {
  enum class Kind : uint8_t {
    kPeak,
    kAllocatedPeak,  // of what is allocated, without cache and driver
    kOwnPeak,        // of what the query's conditions select
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
// `peak`, `allocated-peak`, `own-peak`, `end`, `SECONDS` (an `s` may follow), `@NS`, `iter:N`,
// `mark:NAME`.
util::Result<Instant> ParseInstant(const std::string& text);

struct ReportQuery {
  Instant at;
  std::vector<Dimension> by;  // empty: the ledger's levels
  struct Where {
    Dimension dimension;
    std::string value;
  };
  std::vector<Where> where;
  std::vector<std::string> own;  // packages whose code counts as the user's (--own)
  uint64_t top = 0;              // entries that a writer shows, 0: all; MakeReport makes all

  // Whether each device is selected as a whole or not at all: its total and NVML's figure apply.
  bool SelectsWholeDevices() const;
};

// `DIM=VALUE`.
util::Result<ReportQuery::Where> ParseWhere(const std::string& text);

// A highest instant.
struct PeakFigure {
  uint64_t bytes = 0;
  int64_t time_ns = 0;
};

struct DeviceReport {
  tables::DeviceId device;
  int32_t index = 0;
  tables::DeviceKind kind = tables::DeviceKind::kGpu;
  std::string uuid, name;
  std::optional<uint64_t> total_bytes;
  // NVML's device figure: the sample nearest to the instant of those taken while the ledger stood
  // as it does here, or at the same total; empty where there is none.
  std::optional<uint64_t> nvml_bytes;
  uint64_t ledger_bytes = 0;  // sum of this device's rows
  // Live for its allocators while no device memory is mapped below (an engine asleep): not among
  // the rows.
  uint64_t unbacked_bytes = 0;
  uint64_t unbacked_count = 0;            // blocks
  std::optional<int64_t> residual_bytes;  // nvml - ledger
  int64_t in_transit_bytes =
      0;                // of driver calls under way at the sample; part of the ledger's rows
  std::string at_kind;  // "peak", "end", ...
  int64_t at_ns = 0;    // CLOCK_MONOTONIC
  std::optional<int64_t> at_iteration;
  // Of all that the device has at the instant, whatever the conditions (AllocatedRule).
  uint64_t allocated_bytes = 0;
  uint64_t reserved_bytes = 0;
  std::optional<PeakFigure> allocated_peak;  // of the whole recording
  std::optional<PeakFigure> own_peak;        // of a part of the device that conditions select
};

struct ProcessReport {
  tables::DeviceId device;
  tables::ProcessId process;
  uint32_t pid = 0;
  std::optional<int32_t> rank;
  std::string command;
  std::optional<uint64_t> nvml_bytes;
  uint64_t ledger_bytes = 0;
  std::optional<int64_t> residual_bytes;
};

struct ReportRow {
  tables::DeviceId device;
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
  tables::DeviceId device;
  tables::StackId stack;  // for stacks
  std::string place;   // for lines: "train.py:42 in forward"; for stacks: the innermost user frame
  std::string source;  // text of the line where it was bundled
  uint64_t bytes = 0;
  uint64_t count = 0;
  uint64_t alike = 1;  // how many that print alike share this entry
};

// What PyTorch's allocator has free in the segments of one process, and why it made one more all
// the same. Bytes; the parts add up to free_bytes.
struct CachedMemory {
  tables::DeviceId device;
  uint32_t pid = 0;
  uint64_t free_bytes = 0;
  // The newest segment, or piece of an expandable one, and the block for which it was made.
  int64_t segment_ns = INT64_MIN;
  uint64_t segment_bytes = 0;
  uint64_t request_bytes = 0;
  std::string place;                 // "train.py:42 in step": the request's line; empty: not known
  uint64_t freed_since_bytes = 0;    // in use when it was made, or in it
  uint64_t too_small_bytes = 0;      // free then, too, in pieces smaller than the request
  uint64_t largest_piece_bytes = 0;  // of them, as it was then
  uint64_t elsewhere_bytes = 0;      // in large enough pieces: of another stream or pool
  uint64_t graph_bytes = 0;          // of pools of CUDA graphs
};

// What a list of the report has beyond its limit, of one device.
struct LeftOut {
  enum class List : uint8_t { kLayers, kLines, kStacks, kChurn, kFree } list;
  tables::DeviceId device;
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t count = 0;
};

// How well the ledger explains NVML over the whole run, per device.
struct ResidualSummary {
  tables::DeviceId device;
  uint64_t samples = 0;
  uint64_t samples_in_transit = 0;  // explained only by the interval that calls under way allow
  int64_t worst_bytes = 0;          // largest |residual| outside what is in transit, with its sign
  int64_t worst_at_ns = 0;
  uint64_t p99_bytes = 0;  // of |residual|
  uint64_t estimated_bytes =
      0;  // of the ledger at its peak: by readings of free memory, not by size
  uint64_t ledger_peak_bytes = 0;
};

// A category's bytes at the instant. All categories of a device sum to its ledger_bytes.
struct CategoryEntry {
  tables::DeviceId device;
  std::string category;
  uint64_t bytes = 0;
  uint64_t count = 0;
};

// A module's own bytes at the instant (submodules apart), whatever their category.
struct ModuleEntry {
  tables::DeviceId device;
  std::string module;  // "transformer.h.3.mlp.c_fc"
  std::string type;    // class of the module, "" for a scope
  uint64_t bytes = 0;
  uint64_t count = 0;
  std::vector<std::pair<std::string, uint64_t>> categories;  // largest first
  uint64_t modules = 1;                                      // how many share this entry
};

// A way in which the recording is incomplete.
struct Loss {
  std::string name;
  uint64_t count = 0;
  uint64_t bytes = 0;
};

struct Report {
  // NVML's figures are all that is known: no allocations, and nothing to compare them with.
  bool sampled = false;
  std::vector<DeviceReport> devices;
  std::vector<ProcessReport> processes;
  std::vector<ReportRow> rows;  // largest first within a device
  // Of DeviceReport::unbacked_bytes, by the same dimensions.
  std::vector<ReportRow> unbacked;
  std::vector<Loss> losses;
  std::vector<Invariant> invariants;
  std::vector<ResidualSummary> residuals;
  std::vector<TopEntry> top_stacks;  // at the instant, by bytes
  std::vector<TopEntry> top_lines;   // at the instant, by bytes
  std::vector<TopEntry> top_churn;   // over the whole recording: bytes and count allocated by line
  // At the instant: bytes that are free in segments, and the segments, by the line that made them.
  std::vector<TopEntry> free_lines;
  // The same by process, the most first, and why it was not used. Of peaks, without `where`.
  std::vector<CachedMemory> cached;
  std::vector<CategoryEntry> categories;  // at the instant, largest first within a device
  std::vector<ModuleEntry> top_modules;   // at the instant, by bytes; with `where`, of what matches
  std::vector<ModuleEntry> layers;        // the same with repeated ones folded (fold_modules.h)
  std::vector<LeftOut> left_out;          // of the lists above, where they have a limit
  std::vector<Overflow> overflow;         // of a run with --overflow, whatever the instant
  std::vector<CategoryEntry> unbacked_categories;  // as `categories`, of what has no device memory
  // When most had no device memory below it, over the whole recording; none where nothing ever was.
  std::vector<tables::PeakRow> unbacked_peaks;
  // Of the bytes of blocks at the instant: those with a category other than unknown, and those with
  // a module, a parameter or a line.
  uint64_t block_bytes = 0;
  uint64_t block_bytes_with_category = 0;
  uint64_t block_bytes_with_place = 0;
};

// One line of history for the timeline: a group's bytes between two instants, at some level of
// detail.
struct Timeline {
  tables::DeviceId device;
  std::vector<std::string> groups;  // bands, bottom first
  std::vector<int64_t> time_ns;     // bucket starts, ascending
  std::vector<int64_t> peak_ns;     // by bucket: its highest instant
  std::vector<std::vector<uint64_t>>
      peak;  // [group][bucket]: the group's bytes at the bucket's highest instant
  // By bucket, at that instant: what has no device memory below it. Empty where there never was
  // any.
  std::vector<uint64_t> unbacked;
  std::vector<std::pair<int64_t, uint64_t>> nvml;  // samples: time, used bytes
};

// One iteration of a process: from the end of the optimizer step before it to the end of its own.
// Where one process steps several optimizers in turn (a GAN), from the last step of one round to
// the last of the next. Bytes are of one device.
struct Iteration {
  int64_t number = 0;  // from 0; -1: what came before the first
  tables::ProcessId process;
  tables::DeviceId device;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t peak_bytes = 0;  // highest ledger total
  int64_t peak_ns = 0;
  uint64_t end_bytes = 0;       // ledger total at its end
  uint64_t peak_allocated = 0;  // without cache and driver (AllocatedRule)
  uint64_t end_allocated = 0;
  uint64_t peak_reserved = 0;  // in segments of caching allocators; 0 where there are none
  uint64_t end_reserved = 0;
  std::vector<uint64_t> category_peak;  // by Category: highest within the iteration
  std::vector<uint64_t> category_end;   // by Category: at its end
  // Of the temporaries, those allocated in backward: what older tools called intermediate
  // gradients.
  uint64_t backward_temporary_peak = 0;
  // Memory from before the recording that has no name. On a GPU what of it is not PyTorch's
  // (contexts, libraries) is part of the total, but neither allocated nor reserved.
  uint64_t before_recording_peak = 0;
};

// Bytes of one parameter's memory in one iteration: the highest value of each within it.
struct ParameterBytes {
  std::string name;
  uint64_t parameter = 0;
  uint64_t gradient = 0;
  uint64_t optimizer_state = 0;
  tables::ProcessId process;
  tables::DeviceId device;
  std::string module = {};  // its layer; "": not known
};

struct Iterations {
  std::vector<Iteration> iterations;       // by process, device, number
  std::vector<ParameterBytes> parameters;  // of the last whole iteration, in the order of the model
  std::string source;                      // what said where they end: "marks and profiler steps"
};

// Memory of one line and class of layers that grows from iteration to iteration, or that nobody
// freed.
struct Growth {
  tables::DeviceId device;
  tables::StackId stack;           // of its largest part
  std::string place;               // "train.py:42 in step"
  std::string module;              // layers, parameters or tags, as one name: "blocks.[0-11] x12"
  std::string type;                // the layers' class
  std::string category;            // of its largest part
  double bytes_per_iteration = 0;  // slope of a straight line through the iterations' ends
  uint64_t first_bytes = 0;        // live at the end of the first iteration looked at
  uint64_t last_bytes = 0;         // and of the last
  uint64_t count = 0;              // of allocations alive at the last
  bool steady = false;             // grew in nearly every iteration
};
struct LeakOptions {
  std::vector<std::string> suppressions;  // substrings of places, modules, names or stack frames
  size_t limit = 50;
};
// Models that have not run since other models took their place, with all that belongs to them.
struct UnusedModels {
  uint64_t count = 0;
  uint64_t bytes = 0;  // of parameters, buffers, gradients and optimizer state
  std::string names;   // "Linear#[1-9] x9"
};
struct Leaks {
  std::vector<Growth> growing;      // by bytes_per_iteration; empty where there are no iterations
  std::vector<Growth> never_freed;  // alive at the end; not what models in use consist of
  UnusedModels unused;              // these are in `never_freed`
  // Alive at the end and not in `never_freed`, by category: models in use, and what libraries and
  // the driver keep.
  std::vector<uint64_t> not_listed;
  uint64_t suppressed_bytes = 0;
  uint64_t suppressed_count = 0;
  int64_t iterations = 0;
  int64_t warm_up = 0;   // iterations at the start that were left out
  bool too_few = false;  // there are iterations, but fewer than `kFewestIterations`
  uint64_t adopted = 0;  // processes judged by the iterations of another process
  // Growth of all live bytes of the processes; and the part of it that no row explains, negative
  // where memory outside the rows shrinks.
  double bytes_per_iteration = 0;
  double unexplained_per_iteration = 0;

  bool IsJudged() const { return iterations > 0 && !too_few; }
  bool Grows() const { return bytes_per_iteration > 0; }
};
// What a statement about growth needs.
inline constexpr int64_t kFewestIterations = 6;

// Bytes of names and stacks in a report, which are in memory. Rows of 16,000 different stacks, all
// live at once and 100 frames of 45 bytes deep, have 72 MB, and take 320 KB of a file at the least.
inline constexpr uint64_t kTextBaseBytes = uint64_t{64} << 20;
inline constexpr uint64_t kTextBytesPerFileByte = 256;

// The path of the row that has what a limit left out.
inline constexpr char kRestRow[] = "(rest)";
// Leaves the `top` largest paths of each device, whole, and one row of the rest; 0: all.
void CutRows(uint64_t top, std::vector<ReportRow>* rows);

// The questions. Each is a pure function of the tables, reads the frames of `allocations` that it
// needs, and may be asked from several threads at once.
util::Result<Report> MakeReport(const tables::Recording& recording, const ReportQuery& query);
// `buckets` is the level of detail, which CheckBuckets() bounds; bands are categories, with the
// driver-owned parts by name.
util::Result<std::vector<Timeline>> MakeTimelines(const tables::Recording& recording,
                                                  size_t buckets);
// An error where the recording has no iterations.
util::Result<Iterations> MakeIterations(const tables::Recording& recording);
util::Result<Leaks> MakeLeaks(const tables::Recording& recording, const LeakOptions& options);

}  // namespace vramscope::query
