// SPDX-License-Identifier: Apache-2.0
// Memory that grows from iteration to iteration: of each process in total, then by line and class,
// and below that by category and by name where the whole does not grow.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "query/core/instant.h"
#include "query/core/live_set.h"
#include "query/core/parallel.h"
#include "query/dimensions/iteration_times.h"
#include "query/history/leak_parts.h"

namespace vramscope::query {
namespace {

using format::Category;

// A line needs as many points after the warm-up.
constexpr int64_t kFewestPoints = 4;

constexpr size_t kMostAncestors = 64;

// Iterations at the start of `count` in which caches fill and optimizers make their state.
int64_t WarmUpOf(int64_t count) {
  return std::min<int64_t>(std::clamp<int64_t>(count / 10, 2, 20), count);
}
static_assert(kFewestIterations == 2 + kFewestPoints);

// Points at the end in which a leak has to grow as well.
int64_t TailOf(int64_t count) {
  return std::max<int64_t>(count / 4, 2);
}

// Bytes at the ends of the iterations looked at, and what a leak's look like: they end higher than
// they began, they grow in the last quarter as well (a cache that is full does not), and they
// hardly ever sink (what comes and goes with the batch does).
struct Line {
  std::vector<int64_t> bytes;
  std::vector<int64_t> counts;

  bool Grows() const {
    const size_t count = bytes.size();
    if (count < static_cast<size_t>(kFewestPoints) || bytes.back() <= bytes.front())
      return false;
    if (bytes.back() <= bytes[count - 1 - static_cast<size_t>(TailOf(static_cast<int64_t>(count)))])
      return false;
    int64_t rises = 0;
    int64_t drops = 0;
    for (size_t i = 1; i < count; ++i) {
      const int64_t step = bytes[i] - bytes[i - 1];
      (step > 0 ? rises : drops) += step > 0 ? step : -step;
    }
    return drops * 4 <= rises;
  }
  size_t Rises() const {
    size_t rises = 0;
    for (size_t i = 1; i < bytes.size(); ++i)
      rises += bytes[i] > bytes[i - 1] ? size_t{1} : 0;
    return rises;
  }
  bool Steady() const { return Rises() * 10 >= (bytes.size() - 1) * 9; }
  // One step is not growth: other names of the group may have such steps in turn.
  bool RisesOften() const { return Rises() * 4 >= bytes.size() - 1; }

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

// The iterations by which an account is judged: numbers [first, until) of `times`.
struct Window {
  const ProcessIterations* times = nullptr;
  int64_t first = 0;
  int64_t until = 0;

  int64_t FirstPoint() const { return first + WarmUpOf(until - first); }
};

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
  void Add(ChangeSeries& other) {
    for (const Change& change : other.Merge())
      Add(change);
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
  // From the first point of the window to its last.
  int64_t Rise(const Window& window) const {
    int64_t rise = 0;
    for (const Change& change : changes_)
      rise +=
          change.number > window.FirstPoint() && change.number < window.until ? change.bytes : 0;
    return rise;
  }
  // Nothing where it does not grow.
  std::optional<Line> GrowingIn(const Window& window) {
    if (Rise(window) <= 0)
      return std::nullopt;
    Line line;
    Change now;
    const std::vector<Change>& changes = Merge();
    auto change = changes.begin();
    for (int64_t number = window.FirstPoint(); number < window.until; ++number) {
      for (; change != changes.end() && change->number <= number; ++change) {
        now.bytes += change->bytes;
        now.count += change->count;
      }
      line.bytes.push_back(now.bytes);
      line.counts.push_back(now.count);
    }
    return line.Grows() ? std::optional<Line>(std::move(line)) : std::nullopt;
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

// What one thread found.
struct SitesFound {
  std::unordered_map<uint32_t, SiteSeries> sites;
  std::vector<ChangeSeries> totals;  // by account
};

// What is looked at of each site.
struct SiteView {
  const Window* window = nullptr;  // nullptr: nothing
  uint32_t account = 0;
  bool alive = false;  // its group has something alive at the last iteration's end
};

// What lives within one iteration leaves no trace here.
void Gather(const tables::AllocationFrame& frame,
            const std::vector<SiteView>& views,
            SitesFound* out) {
  int64_t hint = 0;
  for (size_t i = 0; i < frame.rows; ++i) {
    const uint32_t site = frame.site[i];
    const uint64_t bytes = frame.bytes[i] - std::min(frame.bytes[i], frame.rounding_bytes[i]);
    if (site >= views.size() || views[site].window == nullptr || bytes == 0)
      continue;
    const Window& window = *views[site].window;
    const ProcessIterations& times = *window.times;
    const int64_t end_ns = frame.end_ns[i];
    // Most live within an iteration, and neighbours of a frame in the same one.
    if (times.Holds(hint, frame.begin_ns[i]) && times.Holds(hint, end_ns))
      continue;
    // The first end at which it is alive, and the first at which it no longer is.
    const int64_t from = std::max<int64_t>(times.NumberAt(frame.begin_ns[i]), window.first);
    hint = from;
    const int64_t until = end_ns == tables::kNever
                              ? window.until
                              : std::clamp(times.NumberAt(end_ns), window.first, window.until);
    if (from >= until)
      continue;
    const auto add = [&](ChangeSeries* series) {
      series->Add({from, static_cast<int64_t>(bytes), 1});
      series->Add({until, -static_cast<int64_t>(bytes), -1});
    };
    add(&out->totals[views[site].account]);
    if (!views[site].alive)
      continue;
    SiteSeries& series = out->sites[site];
    add(&series.changes);
    if (until == window.until)
      series.last_bytes += bytes;
  }
}

// Memory of a line that has one class, one category and one name.
struct GrowthPart {
  ChangeSeries changes;
  std::map<tables::StackId, uint64_t> stacks;  // bytes alive at the last iteration's end
};
struct PartKey {
  tables::StringId type;  // the layer's class
  Category category;
  tables::StringId name;
  friend auto operator<=>(const PartKey&, const PartKey&) = default;
};
using Parts = std::map<PartKey, GrowthPart>;
using PartSpan = std::span<const Parts::iterator>;

// Neighbours with the same key.
template <typename Key>
std::vector<PartSpan> SplitBy(PartSpan parts, Key key) {
  std::vector<PartSpan> out;
  for (size_t begin = 0, end = 0; begin < parts.size(); begin = end) {
    while (end < parts.size() && key(parts[end]->first) == key(parts[begin]->first))
      ++end;
    out.push_back(parts.subspan(begin, end - begin));
  }
  return out;
}

ChangeSeries SumOf(PartSpan parts) {
  ChangeSeries sum;
  for (const auto& part : parts)
    sum.Add(part->second.changes);
  return sum;
}

class GrowthFinder {
 public:
  GrowthFinder(const tables::Recording& recording, LeakGroups* groups, Leaks* out)
      : recording_(recording),
        tables_(recording.tables()),
        times_(tables_),
        groups_(*groups),
        out_(*out) {}

  util::Status Find();

 private:
  bool IsJudged(tables::ProcessId process) const {
    const ProcessIterations& of = times_.Of(process);
    return of.count() - of.first() >= kFewestIterations;
  }
  // The process whose iterations judge a process without enough of its own: an ancestor if one has
  // enough, otherwise the process with the most.
  tables::ProcessId JudgeOf(tables::ProcessId process) const;
  // Whether a process whose end is unknown may still exist at the end of `times`: its last event is
  // late, and its parent has not begun another process since. A loader's worker that is ahead of
  // the main process waits, and records nothing.
  bool MayWait(const tables::AccountRow& account, const ProcessIterations& times) const;
  void FindWindows();
  util::Status Read(std::vector<SitesFound>* found);
  void AddGrowths(const LineKey& line, Parts& parts);
  void AddGrowthsOfClass(const LineKey& line, PartSpan parts);
  // Whether a class rises only because its memory is split over classes: the agent learned of the
  // model late, and part of its memory has another class.
  bool IsSplitOverClasses(const LineKey& line, const std::vector<PartSpan>& classes) const;
  // Adds a row where the parts as a whole grow.
  bool AddGrowth(const LineKey& line, PartSpan parts, bool whole);

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  const IterationTimes times_;
  std::map<std::pair<tables::HostId, uint32_t>, tables::ProcessId> by_pid_;
  std::map<std::pair<tables::HostId, uint32_t>, int64_t> last_child_ns_;  // by the parent's pid
  tables::ProcessId with_most_;  // iterations; 0: none has enough
  LeakGroups& groups_;
  Leaks& out_;
  std::vector<Window> windows_;    // by account; without times: not judged
  std::vector<double> explained_;  // by account: what rows say
};

tables::ProcessId GrowthFinder::JudgeOf(tables::ProcessId process) const {
  tables::ProcessId at = process;
  // A damaged table may make processes each other's parents.
  for (size_t steps = 0; steps < kMostAncestors && at.value != 0; ++steps) {
    if (IsJudged(at))
      return at;
    const tables::ProcessRow& child = tables_.processes[at.value];
    const auto parent = by_pid_.find({child.host, child.parent_pid});
    at = parent == by_pid_.end() ? tables::ProcessId{} : parent->second;
  }
  return with_most_;
}

bool GrowthFinder::MayWait(const tables::AccountRow& account,
                           const ProcessIterations& times) const {
  const tables::ProcessRow& row = tables_.processes[account.process.value];
  // Where its end was seen, that comes after its last event.
  if (account.end_ns > row.end_ns || row.closed_cleanly != 0 ||
      last_child_ns_.at({row.host, row.parent_pid}) > row.end_ns)
    return false;
  return times.count() - times.NumberAt(row.end_ns) <= TailOf(times.count() - times.first());
}

void GrowthFinder::FindWindows() {
  int64_t most = 0;
  for (uint32_t i = 1; i < tables_.processes.size(); ++i) {
    const tables::ProcessRow& row = tables_.processes[i];
    by_pid_.try_emplace({row.host, row.pid}, tables::ProcessId{i});
    int64_t& last_ns =
        last_child_ns_.try_emplace({row.host, row.parent_pid}, row.begin_ns).first->second;
    last_ns = std::max(last_ns, row.begin_ns);
    const int64_t count =
        times_.Of(tables::ProcessId{i}).count() - times_.Of(tables::ProcessId{i}).first();
    if (count >= kFewestIterations && count > most) {
      most = count;
      with_most_ = tables::ProcessId{i};
    }
  }
  windows_.resize(tables_.accounts.size());
  std::set<uint32_t> adopted;
  for (size_t i = 1; i < tables_.accounts.size(); ++i) {
    const tables::AccountRow& account = tables_.accounts[i];
    const tables::ProcessId process = account.process;
    if (process.value == 0 || process.value >= tables_.processes.size())
      continue;
    const tables::ProcessId judge = JudgeOf(process);
    if (judge.value == 0)
      continue;
    const ProcessIterations& times = times_.Of(judge);
    Window window{&times, times.first(), times.count()};
    if (judge != process) {
      // While it was there. What a process that ended had is gone.
      const int64_t begin_ns = tables_.processes[process.value].begin_ns;
      window.first = std::max<int64_t>(window.first, times.NumberAt(begin_ns));
      if (MayWait(account, times))
        window.until = std::clamp(times.NumberAt(account.end_ns), window.first, window.until);
      else if (account.end_ns <= times.EndOf(window.until - 1))
        --window.until;
      if (account.end_ns <= times.EndOf(window.until - 1))
        continue;
    }
    if (window.until - window.first < kFewestIterations)
      continue;
    if (judge != process)
      adopted.insert(process.value);
    windows_[i] = window;
  }
  out_.adopted = adopted.size();
}

util::Status GrowthFinder::Read(std::vector<SitesFound>* found) {
  // What has nothing alive at the last iteration's end does not grow: most is of that kind.
  Instants last = AllAt(tables_, kNoTime);
  for (size_t i = 1; i < windows_.size(); ++i) {
    if (windows_[i].times != nullptr)
      last.of_account[i] = windows_[i].times->EndOf(windows_[i].until - 1);
  }
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto live, ReadLiveSetWithCheckpointed(recording_, last));
  std::set<std::pair<LineKey, tables::StringId>> alive;  // with the class
  for (size_t i = 1; i < live.sites.size(); ++i) {
    if (live.sites[i].bytes != 0 && !groups_.Suppresses(tables_.sites[i]))
      alive.insert({groups_.LineOf(tables_.sites[i]), tables_.sites[i].module_class});
  }
  std::vector<SiteView> views;
  for (const tables::SiteRow& site : tables_.sites) {
    const uint32_t account = site.account.value < windows_.size() ? site.account.value : 0;
    SiteView& view = views.emplace_back();
    if (windows_[account].times == nullptr || site.backing != 0 || groups_.Suppresses(site))
      continue;
    view = {&windows_[account], account, alive.contains({groups_.LineOf(site), site.module_class})};
  }
  std::vector<size_t> frames(recording_.frame_count());
  uint64_t rows = 0;
  for (size_t i = 0; i < frames.size(); ++i) {
    frames[i] = i;
    rows += recording_.zone(i).rows;
  }
  found->resize(WorkersFor(rows));
  for (SitesFound& part : *found)
    part.totals.resize(windows_.size());
  const uint32_t wanted =
      tables::kBeginNs | tables::kEndNs | tables::kBytes | tables::kRoundingBytes | tables::kSite;
  return ForEachFrame(recording_, frames, wanted, found->size(),
                      [&](size_t worker, const tables::AllocationFrame& frame) {
                        Gather(frame, views, &(*found)[worker]);
                      });
}

bool GrowthFinder::AddGrowth(const LineKey& line, PartSpan parts, bool whole) {
  const Window& window = windows_[line.account.value];
  const std::optional<Line> grown = SumOf(parts).GrowingIn(window);
  if (!grown || (!whole && !grown->RisesOften()))
    return false;
  // The text is about growth, not about the bytes before it.
  std::map<Category, int64_t> rises;
  for (const auto& part : parts)
    rises[part->first.category] += part->second.changes.Rise(window);
  const Category category =
      std::max_element(rises.begin(), rises.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->first;
  LeakShares shares;
  for (const auto& part : parts) {
    const int64_t rise = part->second.changes.Rise(window);
    if (part->first.category != category || rise <= 0)
      continue;
    shares.types[part->first.type] += static_cast<uint64_t>(rise);
    shares.names[part->first.name] += static_cast<uint64_t>(rise);
    for (const auto& [stack, bytes] : part->second.stacks)
      shares.stacks[stack] += bytes;
  }
  Growth growth = groups_.Describe(line, category, shares);
  growth.bytes_per_iteration = grown->Slope();
  growth.first_bytes = static_cast<uint64_t>(std::max<int64_t>(grown->bytes.front(), 0));
  growth.last_bytes = static_cast<uint64_t>(grown->bytes.back());
  growth.count = static_cast<uint64_t>(std::max<int64_t>(grown->counts.back(), 0));
  growth.steady = grown->Steady();
  explained_[line.account.value] += growth.bytes_per_iteration;
  out_.growing.push_back(std::move(growth));
  return true;
}

bool GrowthFinder::IsSplitOverClasses(const LineKey& line,
                                      const std::vector<PartSpan>& classes) const {
  if (line.frame.value == 0 || classes.size() < 2)
    return false;
  const Window& window = windows_[line.account.value];
  return std::any_of(classes.begin(), classes.end(), [&](PartSpan of_class) {
    ChangeSeries sum = SumOf(of_class);
    return sum.Rise(window) > 0 && !sum.GrowingIn(window);
  });
}

void GrowthFinder::AddGrowths(const LineKey& line, Parts& parts) {
  std::vector<Parts::iterator> all;
  for (auto part = parts.begin(); part != parts.end(); ++part)
    all.push_back(part);
  const auto classes = SplitBy(all, [](const PartKey& key) { return key.type; });
  if (IsSplitOverClasses(line, classes) && AddGrowth(line, all, true))
    return;
  for (const PartSpan of_class : classes)
    AddGrowthsOfClass(line, of_class);
}

void GrowthFinder::AddGrowthsOfClass(const LineKey& line, PartSpan parts) {
  if (AddGrowth(line, parts, true))
    return;
  for (const PartSpan of_category :
       SplitBy(parts, [](const PartKey& key) { return key.category; })) {
    if (AddGrowth(line, of_category, false))
      continue;
    for (size_t i = 0; i < of_category.size(); ++i)
      AddGrowth(line, of_category.subspan(i, 1), false);
  }
}

util::Status GrowthFinder::Find() {
  out_.iterations = times_.count() - times_.first();
  if (out_.iterations == 0)
    return {};
  out_.warm_up = WarmUpOf(out_.iterations);
  FindWindows();
  out_.too_few = std::none_of(windows_.begin(), windows_.end(),
                              [](const Window& window) { return window.times != nullptr; });
  if (out_.too_few)
    return {};
  std::vector<SitesFound> found;
  VRAMSCOPE_RETURN_IF_ERROR(Read(&found));
  std::map<LineKey, Parts> lines;
  std::vector<ChangeSeries> totals(windows_.size());
  for (SitesFound& of_thread : found) {
    for (size_t i = 0; i < totals.size(); ++i)
      totals[i].Add(of_thread.totals[i]);
    for (auto& [index, series] : of_thread.sites) {
      const tables::SiteRow& site = tables_.sites[index];
      GrowthPart& part =
          lines[groups_.LineOf(site)][{site.module_class, site.category, LeakGroups::NameOf(site)}];
      part.changes.Add(series.changes);
      if (series.last_bytes != 0)
        part.stacks[site.place] += series.last_bytes;
    }
  }
  explained_.resize(windows_.size());
  for (auto& [line, parts] : lines)
    AddGrowths(line, parts);
  std::stable_sort(out_.growing.begin(), out_.growing.end(), [](const Growth& a, const Growth& b) {
    return a.bytes_per_iteration > b.bytes_per_iteration;
  });
  for (size_t i = 1; i < totals.size(); ++i) {
    const auto line =
        windows_[i].times == nullptr ? std::nullopt : totals[i].GrowingIn(windows_[i]);
    // A leak may be too small to show in a total that varies.
    const double growth = line ? line->Slope() : explained_[i];
    out_.bytes_per_iteration += growth;
    out_.unexplained_per_iteration += growth - explained_[i];
  }
  return {};
}

}  // namespace

util::Status FindGrowing(const tables::Recording& recording, LeakGroups* groups, Leaks* out) {
  return GrowthFinder(recording, groups, out).Find();
}

}  // namespace vramscope::query
