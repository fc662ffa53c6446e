// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "query/core/instant.h"
#include "query/core/live_set.h"
#include "query/dimensions/fold_names.h"
#include "query/dimensions/report.h"
#include "query/history/leak_parts.h"

// Memory that grows from iteration to iteration, and memory that was never freed.
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
  const tables::AccountRow& account = recording_.tables().accounts[line.account.value];
  growth.device = account.device;
  growth.process = account.process;
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

namespace {

using format::Category;

// What a model in use consists of.
bool IsOfModel(Category category) {
  return category == Category::kParameter || category == Category::kGradient ||
         category == Category::kOptimizerState || category == Category::kBuffer;
}

// What libraries, allocators and the driver keep by design.
bool IsKeptByDesign(Category category) {
  switch (category) {
    case Category::kWorkspace:
    case Category::kCommunication:
    case Category::kRounding:
    case Category::kCached:
    case Category::kGraphPool:
    case Category::kFragmentation:
    case Category::kDriver:
      return true;
    default:
      return false;
  }
}

// A gradient without a parameter's name is none that a model in use has.
bool IsExpectedToStay(const tables::SiteRow& site, const ModelUse& models) {
  const auto category = site.category;
  if (!IsOfModel(category))
    return IsKeptByDesign(category);
  return !models.IsUnused(site) && (category != Category::kGradient || site.parameter.value != 0);
}

// Memory alive at the end of its process, without the models in use.
util::Status FindNeverFreed(const tables::Recording& recording, LeakGroups* groups, Leaks* out) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto at,
                             ResolveInstant(recording, Instant{Instant::Kind::kEnd, 0, 0, ""}));
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto live, ReadLiveSet(recording, at));
  ModelUse models(recording);
  VRAMSCOPE_RETURN_IF_ERROR(models.Read(live));
  struct Sum {
    uint64_t bytes = 0;
    uint64_t count = 0;
    LeakShares shares;
  };
  std::map<std::tuple<LineKey, tables::StringId, Category>, Sum> sums;
  const tables::Tables& tables = recording.tables();
  for (size_t i = 1; i < live.sites.size(); ++i) {
    const LiveSum& sum = live.sites[i];
    const tables::SiteRow& site = tables.sites[i];
    const auto account = site.account.value;
    if (sum.count == 0 || account == 0 || account >= tables.accounts.size() ||
        tables.accounts[account].process.value == 0 || format::IsSlack(site.part))
      continue;
    if (IsExpectedToStay(site, models)) {
      out->not_listed.resize(std::size(format::kAllCategories));
      out->not_listed[tables::ToWord(site.category)] += sum.bytes;
      continue;
    }
    if (groups->Suppresses(site)) {
      out->suppressed_bytes += sum.bytes;
      out->suppressed_count += sum.count;
      continue;
    }
    if (IsOfModel(site.category) && models.IsUnused(site))
      out->unused.bytes += sum.bytes;
    Sum& group = sums[{groups->LineOf(site), site.module_class, site.category}];
    group.bytes += sum.bytes;
    group.count += sum.count;
    group.shares.types[site.module_class] += sum.bytes;
    group.shares.names[LeakGroups::NameOf(site)] += sum.bytes;
    group.shares.stacks[site.place] += sum.bytes;
  }
  for (const auto& [key, sum] : sums) {
    Growth growth = groups->Describe(std::get<LineKey>(key), std::get<Category>(key), sum.shares);
    growth.last_bytes = sum.bytes;
    growth.count = sum.count;
    out->never_freed.push_back(std::move(growth));
  }
  if (out->unused.bytes > 0) {
    out->unused.count = models.unused_count();
    out->unused.names = models.UnusedNames();
  }
  std::stable_sort(out->never_freed.begin(), out->never_freed.end(),
                   [](const Growth& a, const Growth& b) { return a.last_bytes > b.last_bytes; });
  return {};
}

void CutTo(size_t limit, std::vector<Growth>* growths) {
  growths->resize(std::min(growths->size(), limit));
}

}  // namespace

int64_t Leaks::IterationsNeeded() const {
  return kFewestIterations;
}
bool Leaks::IsJudged() const {
  return iterations > 0 && !too_few;
}
bool Leaks::Grows() const {
  return bytes_per_iteration > 0;
}
std::optional<int64_t> Leaks::JudgedGrowth() const {
  return IsJudged() ? std::optional(static_cast<int64_t>(bytes_per_iteration)) : std::nullopt;
}
std::optional<int64_t> Leaks::JudgedUnexplained() const {
  return IsJudged() ? std::optional(static_cast<int64_t>(unexplained_per_iteration)) : std::nullopt;
}
std::vector<NeverFreed> Leaks::NeverFreedRows() const {
  std::vector<NeverFreed> rows;
  for (const Growth& of : never_freed) {
    rows.push_back(
        {of.device, of.place, of.module, of.type, of.category, of.last_bytes, of.count, of.stack});
  }
  return rows;
}
BytesByName Leaks::ExpectedBytes() const {
  BytesByName expected;
  for (const Category category : format::kAllCategories) {
    if (const uint64_t bytes = BytesOf(not_listed, category); bytes > 0)
      expected.emplace_back(format::CategoryName(category), bytes);
  }
  return expected;
}

util::Result<Leaks> MakeLeaks(const tables::Recording& recording, const LeakOptions& options) {
  LeakGroups groups(recording, options.suppressions);
  Leaks out;
  VRAMSCOPE_RETURN_IF_ERROR(FindGrowing(recording, &groups, &out));
  VRAMSCOPE_RETURN_IF_ERROR(FindNeverFreed(recording, &groups, &out));
  CutTo(options.limit, &out.growing);
  CutTo(options.limit, &out.never_freed);
  return out;
}

}  // namespace vramscope::query
