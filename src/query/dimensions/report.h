// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "query/results.h"
#include "tables/recording.h"
#include "util/status.h"

// The questions of a recording; results.h has the answers.
namespace vramscope::query {

// Dimensions by which rows can be grouped and filtered. dimensions.cc defines what each of them is.
enum class Dimension : uint8_t {
  kHost,
  kDevice,
  kProcess,
  kRank,
  kThread,
  kStream,
  kOwner,
  kAllocator,
  kApi,
  kCategory,
  kModule,
  kClass,
  kParameter,
  kPhase,
  kIteration,
  kLine,
  kPython,
  kNative,
  kTag,
  kCommunicator,
  kSizeClass,
  kLifetime,
  kHolder,
};
inline constexpr size_t kDimensionCount = static_cast<size_t>(Dimension::kHolder) + 1;
const char* DimensionName(Dimension dimension);
// "host, device, process, ...".
std::string DimensionNames();
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

struct LeakOptions {
  std::vector<std::string> suppressions;  // substrings of places, modules, names or stack frames
  size_t limit = 50;
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
// At this number a band takes 8 MB in each thread that fills it.
inline constexpr size_t kMaxBuckets = 1'000'000;
// An error for more buckets than that, and for none: the one that all the functions give.
util::Status CheckBuckets(uint64_t buckets);

// As MakeTimelines(), with a band for each value of a dimension. An error for one that says
// something of single allocations, such as their lifetimes.
util::Result<std::vector<Timeline>> MakeTimelinesBy(const tables::Recording& recording,
                                                    size_t buckets,
                                                    Dimension by);

// As MakeTimelines(), of what some processes have, and of the devices on which they have anything.
using HasProcess = std::function<bool(tables::ProcessId)>;
util::Result<std::vector<Timeline>> MakeTimelinesOf(const tables::Recording& recording,
                                                    size_t buckets,
                                                    const HasProcess& has);

// An error where the recording has no iterations.
util::Result<Iterations> MakeIterations(const tables::Recording& recording);
// An error where no phase of an inference engine is known.
util::Result<EnginePhases> MakePhases(const tables::Recording& recording);
// An error where XLA dumped nothing.
util::Result<XlaPrograms> MakeXlaPrograms(const tables::Recording& recording);
util::Result<Leaks> MakeLeaks(const tables::Recording& recording, const LeakOptions& options);
// What `run --summary` leaves of a recording: at most 64 KiB a rank.
util::Result<Summary> MakeSummary(const tables::Recording& recording);

// Memory of one process that another has open. With `at` then, otherwise what is kept after its
// maker freed it or ended, at its highest.
struct Instants;
util::Result<std::vector<OpenMemory>> MakeOpenMemory(const tables::Recording& recording,
                                                     const Instants* at);

// The samples of host memory that a report shows; none if no sample was taken.
std::vector<HostMemory> MakeHostMemory(const tables::Recording& recording);

// The counters of bytes with the highest peaks.
std::vector<NvtxCounter> MakeNvtxCounters(const tables::Recording& recording);

// By device; none of a run in which nothing was served from the host.
util::Result<std::vector<Overflow>> FindOverflow(const tables::Recording& recording);

}  // namespace vramscope::query
