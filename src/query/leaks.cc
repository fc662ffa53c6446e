// SPDX-License-Identifier: Apache-2.0
// Memory that grows from iteration to iteration, and memory that nobody freed.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "query/frames.h"
#include "query/instant.h"
#include "query/live_set.h"
#include "query/parallel.h"
#include "query/report.h"

namespace vramscope::query {
namespace {

using format::Category;
using tables::AccountId;

// Fewer points than this are no line.
constexpr int64_t kFewestPoints = 4;

// Bytes at the ends of the iterations looked at, and what a leak's look like: they end higher than
// they began, they grow in the last quarter as well (a cache that is full does not), and they
// hardly ever sink (what comes and goes with the batch does).
struct Line {
  std::vector<int64_t> bytes;

  bool Grows() const {
    const size_t count = bytes.size();
    if (count < static_cast<size_t>(kFewestPoints) || bytes.back() <= bytes.front())
      return false;
    const size_t tail = std::max<size_t>(count / 4, 2);
    if (bytes.back() <= bytes[count - 1 - tail])
      return false;
    int64_t rises = 0;
    int64_t drops = 0;
    for (size_t i = 1; i < count; ++i) {
      const int64_t step = bytes[i] - bytes[i - 1];
      (step > 0 ? rises : drops) += step > 0 ? step : -step;
    }
    return drops * 4 <= rises;
  }

  bool Steady() const {
    size_t rises = 0;
    for (size_t i = 1; i < bytes.size(); ++i)
      rises += bytes[i] > bytes[i - 1] ? size_t{1} : 0;
    return rises * 10 >= (bytes.size() - 1) * 9;
  }

  // Of the straight line that fits best.
  double Slope() const {
    const double middle = static_cast<double>(bytes.size() - 1) / 2;
    double above = 0;
    double below = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const double x = static_cast<double>(i) - middle;
      above += x * static_cast<double>(bytes[i]);
      below += x * x;
    }
    return above / below;
  }
};

bool IsExpectedToStay(Category category) {
  switch (category) {
    case Category::kParameter:
    case Category::kGradient:
    case Category::kOptimizerState:
    case Category::kBuffer:
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

// Iterations at the start of `count` in which caches fill and optimizers make their state.
int64_t WarmUpOf(int64_t count) {
  return std::min<int64_t>(std::clamp<int64_t>(count / 10, 2, 20), count);
}

// Memory that belongs together: it was allocated in one place, for one layer or name.
struct GroupKey {
  AccountId account;
  tables::FrameId frame;  // the user's innermost
  tables::StringId name;  // the one that says most: the layer, else the parameter, else the tag
  friend auto operator<=>(const GroupKey&, const GroupKey&) = default;
};

// The groups that sites belong to, and what people asked not to see: substrings of places, names
// and frames.
class Grouping {
 public:
  Grouping(const tables::Recording& recording, const std::vector<std::string>& suppressions)
      : recording_(recording), patterns_(suppressions), frames_(recording) {}

  GroupKey KeyOf(const tables::SiteRow& site) {
    const tables::StringId name = site.module.value != 0      ? site.module
                                  : site.parameter.value != 0 ? site.parameter
                                                              : site.tag;
    return {site.account, frames_.Of(site.place), name};
  }
  bool Suppresses(const tables::SiteRow& site) {
    if (patterns_.empty())
      return false;
    return Matches(site.place) || Matches(site.stack) || Matches(site.native_stack) ||
           Matches(recording_.string(KeyOf(site).name));
  }

 private:
  bool Matches(std::string_view text) const {
    return std::any_of(patterns_.begin(), patterns_.end(), [&](const std::string& pattern) {
      return text.find(pattern) != std::string_view::npos;
    });
  }
  // Of any frame of the stack.
  bool Matches(tables::StackId stack) {
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

  const tables::Recording& recording_;
  const std::vector<std::string>& patterns_;
  UserFrames frames_;
  std::unordered_map<uint32_t, bool> verdicts_;  // by frame
  std::unordered_map<uint32_t, bool> stacks_;
};

// Bytes by stack and category: the largest stands for all.
using Shares = std::map<std::pair<tables::StackId, uint8_t>, uint64_t>;

Growth GrowthOf(const tables::Recording& recording, const GroupKey& key, const Shares& shares) {
  Growth growth;
  growth.device = recording.tables().accounts[key.account.value].device;
  if (key.frame.value != 0)
    growth.place = FormatFrame(recording, key.frame);
  growth.module = recording.string(key.name);
  const auto largest =
      std::max_element(shares.begin(), shares.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (largest != shares.end()) {
    growth.stack = largest->first.first;
    growth.category = format::CategoryName(static_cast<Category>(largest->first.second));
  }
  return growth;
}

// How bytes change from the end of one iteration to the next one's: one change an iteration once
// they are merged, and at most twice as many before.
class ChangeSeries {
 public:
  struct Change {
    int64_t number = 0;  // of the iteration at whose end it is seen first
    int64_t bytes = 0;
    int64_t count = 0;
  };

  void Add(const Change& change) {
    // Neighbours of a frame are of one iteration, or the next.
    for (size_t back = 1; back <= std::min<size_t>(changes_.size(), 2); ++back) {
      Change& known = changes_[changes_.size() - back];
      if (known.number != change.number)
        continue;
      known.bytes += change.bytes;
      known.count += change.count;
      return;
    }
    if (changes_.size() >= merge_at_) {
      Merge();
      merge_at_ = std::max(merge_at_, 2 * changes_.size());
    }
    changes_.push_back(change);
  }
  // By iteration.
  const std::vector<Change>& Merge() {
    std::sort(changes_.begin(), changes_.end(),
              [](const Change& a, const Change& b) { return a.number < b.number; });
    size_t merged = 0;
    for (const Change& change : changes_) {
      if (merged > 0 && changes_[merged - 1].number == change.number) {
        changes_[merged - 1].bytes += change.bytes;
        changes_[merged - 1].count += change.count;
      } else {
        changes_[merged++] = change;
      }
    }
    changes_.resize(merged);
    return changes_;
  }

 private:
  std::vector<Change> changes_;
  size_t merge_at_ = 64;
};

// What one site has at the ends of iterations.
struct SiteSeries {
  ChangeSeries changes;
  uint64_t last_bytes = 0;  // alive at the last one's
};
using SeriesBySite = std::unordered_map<uint32_t, SiteSeries>;

// What lives within one iteration leaves no trace here.
void Gather(const tables::AllocationFrame& frame,
            const std::vector<const ProcessIterations*>& iterations_of,
            SeriesBySite* out) {
  int64_t hint = 0;
  for (size_t i = 0; i < frame.rows; ++i) {
    const uint32_t site = frame.site[i];
    const ProcessIterations* iterations =
        site < iterations_of.size() ? iterations_of[site] : nullptr;
    const uint64_t bytes = frame.bytes[i] - std::min(frame.bytes[i], frame.rounding_bytes[i]);
    if (iterations == nullptr || bytes == 0)
      continue;
    // Most live within an iteration, and neighbours of a frame in the same one.
    if (iterations->Holds(hint, frame.begin_ns[i]) && iterations->Holds(hint, frame.end_ns[i]))
      continue;
    // The first end at which it is alive, and the first at which it no longer is.
    const int64_t from =
        std::max<int64_t>(iterations->NumberAt(frame.begin_ns[i]), iterations->first());
    hint = from;
    const int64_t until =
        frame.end_ns[i] == tables::kNever
            ? iterations->count()
            : std::max<int64_t>(iterations->NumberAt(frame.end_ns[i]), iterations->first());
    if (from >= until)
      continue;
    SiteSeries& series = (*out)[site];
    series.changes.Add({from, static_cast<int64_t>(bytes), 1});
    series.changes.Add({until, -static_cast<int64_t>(bytes), -1});
    if (until == iterations->count())
      series.last_bytes += bytes;
  }
}

struct GroupSeries {
  ChangeSeries changes;
  Shares shares;  // of what is alive at the last iteration's end
};

std::vector<Growth> GrowthsOf(const tables::Recording& recording,
                              const IterationTimes& times,
                              std::map<GroupKey, GroupSeries>* groups) {
  std::vector<Growth> out;
  for (auto& [key, series] : *groups) {
    const ProcessIterations& of = times.Of(recording.tables().accounts[key.account.value].process);
    const int64_t first = of.first();
    const int64_t count = of.count() - first;
    if (series.shares.empty() || count < kFewestPoints)
      continue;
    Line line;
    ChangeSeries::Change now;
    const std::vector<ChangeSeries::Change>& changes = series.changes.Merge();
    auto change = changes.begin();
    for (int64_t number = 0; number < count; ++number) {
      for (; change != changes.end() && change->number <= first + number; ++change) {
        now.bytes += change->bytes;
        now.count += change->count;
      }
      if (number >= WarmUpOf(count))
        line.bytes.push_back(now.bytes);
    }
    if (!line.Grows())
      continue;
    Growth growth = GrowthOf(recording, key, series.shares);
    growth.bytes_per_iteration = line.Slope();
    growth.first_bytes = static_cast<uint64_t>(std::max<int64_t>(line.bytes.front(), 0));
    growth.last_bytes = static_cast<uint64_t>(line.bytes.back());
    growth.count = static_cast<uint64_t>(std::max<int64_t>(now.count, 0));
    growth.steady = line.Steady();
    out.push_back(std::move(growth));
  }
  std::stable_sort(out.begin(), out.end(), [](const Growth& a, const Growth& b) {
    return a.bytes_per_iteration > b.bytes_per_iteration;
  });
  return out;
}

util::Result<std::vector<Growth>> FindGrowing(const tables::Recording& recording,
                                              const IterationTimes& times,
                                              Grouping* grouping) {
  const tables::Tables& tables = recording.tables();
  // What has nothing alive at the last iteration's end does not grow: most is of that kind.
  Instants last = AllAt(tables, kNoTime);
  for (size_t i = 1; i < tables.accounts.size(); ++i) {
    const ProcessIterations& of = times.Of(tables.accounts[i].process);
    if (tables.accounts[i].process.value != 0 && !of.empty())
      last.of_account[i] = of.EndOf(of.count() - 1);
  }
  const auto live = ReadLiveSetWithCheckpointed(recording, last);
  if (!live.ok())
    return live.status();
  std::set<GroupKey> alive;
  for (size_t i = 1; i < live->sites.size(); ++i) {
    if (live->sites[i].bytes != 0 && !grouping->Suppresses(tables.sites[i]))
      alive.insert(grouping->KeyOf(tables.sites[i]));
  }
  std::vector<const ProcessIterations*> iterations_of;
  for (const tables::SiteRow& site : tables.sites) {
    const uint32_t account = site.account.value < tables.accounts.size() ? site.account.value : 0;
    const bool counts = account != 0 && site.backing == 0 &&
                        alive.contains(grouping->KeyOf(site)) && !grouping->Suppresses(site);
    iterations_of.push_back(counts ? &times.Of(tables.accounts[account].process) : nullptr);
  }
  std::vector<size_t> frames(recording.frame_count());
  uint64_t rows = 0;
  for (size_t i = 0; i < frames.size(); ++i) {
    frames[i] = i;
    rows += recording.zone(i).rows;
  }
  std::vector<SeriesBySite> found(WorkersFor(rows));
  const uint32_t wanted =
      tables::kBeginNs | tables::kEndNs | tables::kBytes | tables::kRoundingBytes | tables::kSite;
  VRAMSCOPE_RETURN_IF_ERROR(ForEachFrame(recording, frames, wanted, found.size(),
                                         [&](size_t worker, const tables::AllocationFrame& frame) {
                                           Gather(frame, iterations_of, &found[worker]);
                                         }));
  std::map<GroupKey, GroupSeries> groups;
  for (SeriesBySite& part : found) {
    for (auto& [index, series] : part) {
      const tables::SiteRow& site = tables.sites[index];
      GroupSeries& group = groups[grouping->KeyOf(site)];
      for (const ChangeSeries::Change& change : series.changes.Merge())
        group.changes.Add(change);
      if (series.last_bytes != 0)
        group.shares[{site.place, site.category}] += series.last_bytes;
    }
  }
  return GrowthsOf(recording, times, &groups);
}

// What is alive at the end of its process and is no parameter, gradient, buffer or optimizer state.
// Workspaces of libraries are kept by design and are left out, too.
util::Status FindNeverFreed(const tables::Recording& recording, Grouping* grouping, Leaks* out) {
  const auto at = ResolveInstant(recording, Instant{Instant::Kind::kEnd, 0, 0, ""});
  if (!at.ok())
    return at.status();
  const auto live = ReadLiveSet(recording, *at);
  if (!live.ok())
    return live.status();
  struct Sum {
    uint64_t bytes = 0;
    uint64_t count = 0;
    Shares shares;
  };
  std::map<GroupKey, Sum> sums;
  const std::vector<tables::SiteRow>& sites = recording.tables().sites;
  for (size_t i = 1; i < live->sites.size(); ++i) {
    const LiveSum& sum = live->sites[i];
    const tables::SiteRow& site = sites[i];
    const auto account = site.account.value;
    if (sum.count == 0 || account == 0 || account >= recording.tables().accounts.size() ||
        recording.tables().accounts[account].process.value == 0 ||
        format::IsSlack(static_cast<format::Part>(site.part)) ||
        IsExpectedToStay(static_cast<Category>(site.category)))
      continue;
    if (grouping->Suppresses(site)) {
      out->suppressed_bytes += sum.bytes;
      out->suppressed_count += sum.count;
      continue;
    }
    Sum& group = sums[grouping->KeyOf(site)];
    group.bytes += sum.bytes;
    group.count += sum.count;
    group.shares[{site.place, site.category}] += sum.bytes;
  }
  for (const auto& [key, sum] : sums) {
    Growth growth = GrowthOf(recording, key, sum.shares);
    growth.last_bytes = sum.bytes;
    growth.count = sum.count;
    out->never_freed.push_back(std::move(growth));
  }
  std::stable_sort(out->never_freed.begin(), out->never_freed.end(),
                   [](const Growth& a, const Growth& b) { return a.last_bytes > b.last_bytes; });
  return {};
}

void CutTo(size_t limit, std::vector<Growth>* growths) {
  growths->resize(std::min(growths->size(), limit));
}

}  // namespace

util::Result<Leaks> MakeLeaks(const tables::Recording& recording, const LeakOptions& options) {
  const IterationTimes times(recording.tables());
  Grouping grouping(recording, options.suppressions);
  Leaks out;
  out.iterations = times.count();
  if (out.iterations > 0) {
    out.warm_up = WarmUpOf(out.iterations);
    auto growing = FindGrowing(recording, times, &grouping);
    if (!growing.ok())
      return growing.status();
    out.growing = std::move(*growing);
  }
  if (const util::Status status = FindNeverFreed(recording, &grouping, &out); !status.ok())
    return status;
  CutTo(options.limit, &out.growing);
  CutTo(options.limit, &out.never_freed);
  return out;
}

}  // namespace vramscope::query
