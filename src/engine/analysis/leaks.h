// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "engine/analysis/naming.h"
#include "engine/model/frames.h"
#include "engine/replay/ledger.h"

namespace vramscope::engine {

// What people asked not to see: substrings of places, names and frames.
class Suppressions {
 public:
  Suppressions(const trace::Trace& trace, std::vector<std::string> patterns)
      : trace_(trace), patterns_(std::move(patterns)) {}

  bool Matches(const std::string& text) const;
  // Of any frame of the stack.
  bool Matches(trace::StackId stack);

 private:
  const trace::Trace& trace_;
  std::vector<std::string> patterns_;
  std::unordered_map<uint32_t, bool> frames_;
  std::unordered_map<uint32_t, bool> stacks_;
};

// Memory that belongs together: it was allocated in one place, for one layer or name.
struct LeakGroup {
  uint32_t space = 0;
  trace::FrameId frame;                    // the user's innermost
  uint32_t name = 0;                       // layer, parameter or tag: a text of the Naming
  trace::StackId stack;                    // of its largest part
  Category category = Category::kUnknown;  // the same
  double bytes_per_iteration = 0;
  uint64_t first_bytes = 0;
  uint64_t last_bytes = 0;
  uint64_t count = 0;
  bool steady = false;
};

struct LeakGroups {
  std::vector<LeakGroup> groups;
  uint64_t suppressed_bytes = 0;
  uint64_t suppressed_count = 0;
};

// Iterations at the start of `count` in which caches fill and optimizers make their state.
int64_t WarmUpOf(int64_t count);

// Gathers what was alive at the ends of iterations. Whatever lives within one leaves no trace here.
class GrowthFinder : public LifeObserver {
 public:
  GrowthFinder(const Ledger& first, Naming& naming, UserFrames& frames, Suppressions& suppressions)
      : first_(first), naming_(naming), frames_(frames), suppressions_(suppressions) {}
  void OnBlock(const Block& block, uint32_t space, int64_t free_ns) override;
  void OnHolding(const Holding& holding, int64_t free_ns) override;
  void OnBlockBegin(const Block&, uint32_t) override {}
  void OnHoldingBegin(const Holding&) override {}
  void OnCarved(const Holding&) override {}

  // What grows, most growth first.
  std::vector<LeakGroup> Finish() const;

 private:
  struct Change {
    int64_t bytes = 0;
    int64_t count = 0;
  };
  struct Part {
    trace::StackId stack;
    Category category = Category::kUnknown;
    uint64_t bytes = 0;  // alive at the last iteration's end
  };
  struct Series {
    std::map<int64_t, Change> changes;  // by the iteration at whose end they are seen first
    std::map<uint32_t, Part> parts;     // by stack
  };

  void See(const LifeRecord& record);

  const Ledger& first_;
  Naming& naming_;
  UserFrames& frames_;
  Suppressions& suppressions_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Series> series_;  // space, frame, name
};

// What is alive at the end of its process and is no parameter, gradient, buffer or optimizer state;
// most bytes first. Workspaces of libraries are kept by design and are left out, too.
LeakGroups FindNeverFreed(const Ledger& ledger,
                          Naming& naming,
                          UserFrames& frames,
                          Suppressions& suppressions);

}  // namespace vramscope::engine
