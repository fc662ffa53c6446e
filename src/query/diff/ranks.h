// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tables/recording.h"
#include "util/status.h"

// Many processes of one program, from one recording or a thousand, as one answer: each at the
// highest instant of its device; ranks that share one, each at its own.
namespace vramscope::query {

struct RankMemory {
  std::string name;  // "rank 3", else that of its file
  int32_t number = -1;
  std::string file, host;
  std::string program;  // "python train.py", whatever its arguments
  uint32_t pid = 0;
  int32_t device = 0;  // NVML's number of the one where it has most
  std::string on;      // "gpu0", "cpu": where it has more than a hundredth of it
  uint64_t bytes = 0;
  uint64_t total_bytes = 0;  // of the device; 0: not known
  int64_t peak_ns = 0;       // when that was, by the recording's clock
  int64_t peak_wall_ns = 0;  // and CLOCK_REALTIME of its host
  std::map<std::string, uint64_t> categories;
  std::map<std::pair<std::string, std::string>, uint64_t> layers;  // by layer and category
  // Where it was asked for: its bytes at the highest instant of its device in each stretch of time,
  // and when that begins, by the same clock.
  struct Stretch {
    int64_t begin_wall_ns = 0;
    uint64_t bytes = 0;
  };
  std::vector<Stretch> history;
  int64_t end_wall_ns = 0;
};

struct RankReport {
  std::vector<RankMemory> ranks;  // by number, then by name
  std::vector<int32_t> missing;   // numbers below the highest that no recording has
  uint64_t bytes = 0;             // of all
  std::map<std::string, uint64_t> categories;
  size_t recordings = 0;
  bool of_gpus = false;
  uint64_t processes_without_memory = 0;  // data loaders and the like
  int64_t first_wall_ns = 0;              // when the first recording began
  int64_t starts_apart_ns = 0;            // and the last after it
  // Why the ranks are not compared: "of different programs"; else empty.
  std::string not_compared;
  // Index into `ranks`. By how much each category of the heaviest differs from the median's,
  // largest first; they add up to excess_bytes(). A layer that has most of it is by itself, the
  // rest of its category beside it.
  size_t median = 0, heaviest = 0;
  struct Excess {
    std::string layer, category;
    int64_t bytes = 0;
  };
  std::vector<Excess> excess;

  uint64_t excess_bytes() const {
    return ranks.empty() || !not_compared.empty() ? 0 : ranks[heaviest].bytes - ranks[median].bytes;
  }
  // Whether that is more than noise: a hundredth of the median, and of a GPU 4 MiB.
  bool IsUneven() const;
};

// Takes recordings one after the other, each of which may be closed afterwards.
class RankFold {
 public:
  // `stretches`: into how many a rank's history is cut; 0: none is told.
  explicit RankFold(size_t stretches = 0) : stretches_(stretches) {}
  util::Status Add(const std::string& file, const tables::Recording& recording);
  RankReport Finish() &&;

 private:
  RankReport report_;
  int64_t last_wall_ns_ = 0;
  size_t stretches_;
};

// The ranks within one recording; none where its processes have fewer than two numbers.
util::Result<RankReport> RanksWithin(const tables::Recording& recording);

}  // namespace vramscope::query
