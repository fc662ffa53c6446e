// SPDX-License-Identifier: Apache-2.0
#include "query/history/leak_groups.h"

#include <algorithm>

#include "query/dimensions/fold_names.h"

namespace vramscope::query {
namespace {

// Of the largest share; nothing where there is none.
template <typename Key>
Key LargestOf(const std::map<Key, uint64_t>& shares) {
  const auto largest =
      std::max_element(shares.begin(), shares.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return largest == shares.end() ? Key{} : largest->first;
}

}  // namespace

bool LeakGroups::Suppresses(const tables::SiteRow& site) {
  if (patterns_.empty())
    return false;
  return Matches(site.place) || Matches(site.stack) || Matches(site.native_stack) ||
         Matches(recording_.string(NameOf(site)));
}

bool LeakGroups::Matches(std::string_view text) const {
  return std::any_of(patterns_.begin(), patterns_.end(), [&](const std::string& pattern) {
    return text.find(pattern) != std::string_view::npos;
  });
}

bool LeakGroups::Matches(tables::StackId stack) {
  const auto [known, added] = stacks_.try_emplace(stack.value, false);
  if (!added)
    return known->second;
  bool matches = false;
  for (const tables::FrameId frame : StackFrames(recording_, stack)) {
    const auto [verdict, is_new] = verdicts_.try_emplace(frame.value, false);
    if (is_new)
      verdict->second = Matches(FormatFrame(recording_, frame));
    matches = matches || verdict->second;
  }
  stacks_[stack.value] = matches;
  return matches;
}

Growth LeakGroups::Describe(const LineKey& line,
                            format::Category category,
                            const LeakShares& shares) const {
  Growth growth;
  growth.device = recording_.tables().accounts[line.account.value].device;
  if (line.frame.value != 0)
    growth.place = FormatFrame(recording_, line.frame);
  growth.type = recording_.string(LargestOf(shares.types));
  growth.category = format::CategoryName(category);
  std::map<std::string, uint64_t> names;
  for (const auto& [name, bytes] : shares.names)
    names[std::string(recording_.string(name))] += bytes;
  growth.module = FoldNames(names);
  growth.stack = LargestOf(shares.stacks);
  return growth;
}

}  // namespace vramscope::query
