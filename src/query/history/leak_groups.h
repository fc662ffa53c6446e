// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/memory_words.h"
#include "query/dimensions/frames.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"

// What `leaks` adds up: memory of one line and one class of layers.
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
  // The name that says most: the layer, else the parameter, else the tag.
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

}  // namespace vramscope::query
