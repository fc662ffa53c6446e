// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "query/results.h"
#include "tables/recording.h"
#include "util/status.h"

// The questions of a recording; results.h has the answers.
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
