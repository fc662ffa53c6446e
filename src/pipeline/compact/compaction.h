// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "resolve/attribute/phases.h"
#include "trace/live/live_trace.h"
#include "util/status.h"

// The past of a ring (docs/FORMAT.md): old chunks of a live file become a file of their own that
// has of them what is still to be known. It has the live file's format and streams. Their chunks
// continue where it ends, so reading it is the same as reading the file.
namespace vramscope::compact {

// The surroundings of an allocation that are not kept: PastOrigin.
struct CompactionOrigin {
  uint8_t phase = 0;
  uint8_t end = 0;  // a format::OriginEnd
  tables::StackId forward;
  tables::StringId scope;  // 0: the event's own
};

// The marks that begin an engine's phases. They are kept up to the number that is listed; of later
// ones the last.
template <class Place>
class PhaseMarks {
 public:
  // Whether to keep this mark at once.
  bool Keeps(std::string_view mark, const Place& place) {
    if (!place.is_old || !mark.starts_with(resolve::kPhaseMark) || mark == name_)
      return false;
    name_ = mark;
    if (++count_ <= resolve::kMostEnginePhases)
      return true;
    last_ = place;
    return false;
  }
  const std::optional<Place>& last() const { return last_; }

 private:
  std::string name_;
  size_t count_ = 0;
  std::optional<Place> last_;
};

struct LossSum {
  uint64_t count = 0;
  uint64_t bytes = 0;
  void Add(uint64_t more, uint64_t more_bytes) {
    count += more;
    bytes += more_bytes;
  }
};

// The plan for one stream of a file.
struct StreamPlan {
  size_t chunks = 0;                             // its first chunks that become past
  uint32_t records = 0;                          // in them
  std::vector<uint32_t> chunk_records;           // in each
  std::vector<bool> keep;                        // by record; of definitions it says nothing
  std::map<uint32_t, CompactionOrigin> origins;  // by record
};

// The plan for one file.
struct CompactionPlan {
  size_t file = 0;
  int64_t cut_ns = 0;  // up to then only what is to be kept is
  uint64_t iterations = 0;
  bool by_marks = false;
  bool knows_phases = false;
  bool has_python = false;
  bool carries_origins = false;  // kept allocations of an earlier past stay as they are
  // Allocations that are not kept; `dropped` ones were not searched for a peak.
  LossSum compacted;
  LossSum dropped;
  std::vector<StreamPlan> streams;
  bool has_chunks() const {
    for (const StreamPlan& stream : streams) {
      if (stream.chunks != 0)
        return true;
    }
    return false;
  }
};

// A chunk that could become past, and when its last record can have been written.
struct OldChunk {
  int64_t end_ns = 0;
  uint32_t size_bytes = 0;
};

// Chunks of live files that are complete and wholly read, by their end.
std::vector<OldChunk> FindOldChunks(const trace::LiveTrace& trace);

// How much of each stream of a file becomes past: whole chunks, from the first one, up to the one
// that the cut is in.
void ChooseChunks(const trace::LiveTrace& trace, CompactionPlan* plan);

// For files that were opened and not read: the oldest complete chunks that ended before `until_ns`,
// until they have `bytes`. One plan a file. Some plans have no chunks.
std::vector<CompactionPlan> ChooseOldest(const std::vector<trace::LiveFile>& files,
                                         uint64_t bytes,
                                         int64_t until_ns);

// By the pairs of clocks of a file's chunks, which is as good as one gets without reading it.
trace::TickClock ClockOfChunks(const trace::LiveFile& file);

struct CompactionFile {
  std::vector<uint8_t> bytes;
  // The ranges of the live file that are not needed any more, by their begin.
  std::map<uint64_t, uint64_t> ranges;
};
// `trace`: whose strings and stacks the plan's origins name; null if there are none.
CompactionFile MakePastFile(const trace::LiveFile& file,
                            const trace::TickClock& clock,
                            const CompactionPlan& plan,
                            const trace::LiveTrace* trace = nullptr);

using LossSums = std::map<uint64_t, LossSum>;  // by loss

// Appends to a past file's bytes what is kept of the first chunks of the plan's stream `number`,
// with the definitions that these and later chunks refer to. Adds the stream's losses to `lost`.
// `trace` may be null: see MakePastFile().
void RewriteStream(const trace::LiveFile& file,
                   const trace::TickClock& clock,
                   const trace::LiveTrace* trace,
                   const CompactionPlan& plan,
                   size_t number,
                   std::vector<uint8_t>* out,
                   LossSums* lost);

// The error where space could not be given back.
inline constexpr char kHeldByReader[] = "somebody reads the recording, and has not ended";

struct CompactOptions {
  std::string directory;
  uint64_t to_bytes = 0;              // of the live files
  bool drop = false;                  // quickly, without a look for peaks
  std::vector<std::string> instants;  // kept by the compaction before: FILE:DEVICE:NS
};

// Run by `vramscope run --ring` from time to time, in another process (docs/FORMAT.md): old chunks
// of the live files become past files, and their space is given back. Prints the instants that are
// kept, for the launcher to hand to a drop.
util::Status Compact(CompactOptions options);

}  // namespace vramscope::compact
