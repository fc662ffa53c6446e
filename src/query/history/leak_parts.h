// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/memory_words.h"
#include "query/core/live_set.h"
#include "query/dimensions/frames.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"
#include "util/status.h"

// The parts of `leaks`: memory grouped by line and class of layers, and which models are in use.
namespace vramscope::query {

struct LineKey {
  tables::AccountId account;
  tables::FrameId frame;  // the user's innermost
  friend auto operator<=>(const LineKey&, const LineKey&) = default;
};

// What a group consists of, for its text. Bytes by the layer's class, by name and by stack.
struct LeakShares {
  std::map<tables::StringId, uint64_t> types;
  std::map<tables::StringId, uint64_t> names;
  std::map<tables::StackId, uint64_t> stacks;
};

// The groups of sites, and what users asked not to see: substrings of places, names and frames.
class LeakGroups {
 public:
  LeakGroups(const tables::Recording& recording, const std::vector<std::string>& suppressions)
      : recording_(recording), patterns_(suppressions), frames_(recording) {}

  LineKey LineOf(const tables::SiteRow& site) { return {site.account, frames_.Of(site.place)}; }
  // The most specific name: layer, parameter or tag, in this order.
  static tables::StringId NameOf(const tables::SiteRow& site) {
    return site.module.value != 0      ? site.module
           : site.parameter.value != 0 ? site.parameter
                                       : site.tag;
  }
  bool Suppresses(const tables::SiteRow& site);
  // Without figures.
  Growth Describe(const LineKey& line, format::Category category, const LeakShares& shares) const;

 private:
  bool Matches(std::string_view text) const;
  // Whether any frame of the stack matches.
  bool Matches(tables::StackId stack);

  const tables::Recording& recording_;
  const std::vector<std::string>& patterns_;
  UserFrames frames_;
  std::unordered_map<uint32_t, bool> verdicts_;  // by frame
  std::unordered_map<uint32_t, bool> stacks_;
};

// Fills what `Leaks` has about growth.
util::Status FindGrowing(const tables::Recording& recording, LeakGroups* groups, Leaks* out);

// Finds out which of the models alive at the end are in use. A model is unused if one of these
// holds:
//
// - It does not run in the last iteration, and one of its class was made and ran after its last
// run.
// - It never ran, and one of its class was made in a later iteration.
// - The process has iterations, it ran in some of them, and only other models run in the last ones.
//
// An averaged or frozen copy that never runs counts as used, since it is kept on purpose.
class ModelUse {
 public:
  explicit ModelUse(const tables::Recording& recording) : recording_(recording) {}

  // `live`: what is alive at the end. Reads allocations only where several models are.
  util::Status Read(const LiveSet& live);
  bool IsUnused(const tables::SiteRow& site) const;
  uint64_t unused_count() const { return unused_count_; }
  // "Linear#[1-9] x9".
  std::string UnusedNames() const;

 private:
  struct Model {
    tables::ProcessId process;
    std::string name;    // the first part of its layers' names: "Linear#2"
    std::string type;    // that without its number
    uint64_t bytes = 0;  // alive at the end, with gradients and optimizer state
    int64_t made_ns = INT64_MAX;
    int64_t last_run_ns = INT64_MIN;
    bool unused = false;

    bool HasRun() const { return last_run_ns != INT64_MIN; }
  };

  // Index into `models_`, or -1.
  int32_t ModelOf(const tables::SiteRow& site) const;
  util::Status ReadTimes();
  void Judge();

  const tables::Recording& recording_;
  std::vector<Model> models_;
  std::map<std::pair<tables::ProcessId, std::string_view>, int32_t> numbers_;
  uint64_t unused_count_ = 0;
};

}  // namespace vramscope::query
