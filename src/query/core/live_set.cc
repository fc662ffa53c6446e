// SPDX-License-Identifier: Apache-2.0
#include "query/core/live_set.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "query/core/parallel.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

using tables::AllocationFrame;

struct GroupKey {
  uint32_t site;
  uint64_t rows;
  friend bool operator==(const GroupKey&, const GroupKey&) = default;
};
struct GroupKeyHash {
  size_t operator()(const GroupKey& key) const noexcept {
    return (key.rows * 0x9e3779b97f4a7c15u ^ key.site) * 0xff51afd7ed558ccdu >> 16;
  }
};

// What one thread gathers.
struct Gathered {
  std::vector<LiveSum> sites;
  std::vector<SegmentState> segments;
  std::unordered_map<GroupKey, size_t, GroupKeyHash> keys;
  std::vector<LiveGroup> groups;
};

LiveSum& GroupOf(Gathered& gathered, const tables::AllocationRow& row, uint64_t key) {
  const auto [found, added] =
      gathered.keys.try_emplace({row.site.value, key}, gathered.groups.size());
  if (added)
    gathered.groups.push_back({row, {}});
  return gathered.groups[found->second].sum;
}

void Add(LiveSum& to, const LiveSum& from) {
  to.bytes += from.bytes;
  to.rounding_bytes += from.rounding_bytes;
  to.count += from.count;
}

// What one frame has that is live.
class FrameReader {
 public:
  FrameReader(const tables::Recording& recording, const Instants& at, const RowKey& row_key)
      : sites_(recording.tables().sites), row_key_(row_key) {
    segment_count_ = recording.tables().segments.size();
    time_of_site_.reserve(sites_.size());
    for (const tables::SiteRow& site : sites_) {
      const bool known = site.account.value < at.of_account.size();
      time_of_site_.push_back(known ? at.of_account[site.account.value] : kNoTime);
    }
  }

  void Read(const AllocationFrame& frame, Gathered& into) const {
    into.sites.resize(row_key_ ? 0 : sites_.size());
    into.segments.resize(segment_count_);
    for (size_t i = 0; i < frame.rows; ++i) {
      const uint32_t site = frame.site[i] < sites_.size() ? frame.site[i] : 0;
      const int64_t time_ns = time_of_site_[site];
      if (frame.begin_ns[i] > time_ns || time_ns >= frame.end_ns[i])
        continue;
      const uint64_t bytes = frame.bytes[i];
      const uint32_t segment = frame.segment[i] < segment_count_ ? frame.segment[i] : 0;
      const uint64_t rounding = std::min(frame.rounding_bytes[i], bytes);
      if (sites_[site].backing != 0) {
        into.segments[segment].Back(bytes - rounding);
        if (rounding != 0)
          (row_key_ ? GroupSum(frame, i, site, into) : into.sites[site]).rounding_bytes += rounding;
        continue;
      }
      if (segment != 0 && sites_[site].unbacked == 0)
        into.segments[segment].Use(bytes, 1);
      LiveSum& sum = row_key_ ? GroupSum(frame, i, site, into) : into.sites[site];
      sum.bytes += bytes - rounding;
      sum.rounding_bytes += rounding;
      ++sum.count;
    }
  }

 private:
  LiveSum& GroupSum(const AllocationFrame& frame, size_t i, uint32_t site, Gathered& into) const {
    tables::AllocationRow row = RowOf(frame, i);
    row.site = tables::SiteId{site};
    return GroupOf(into, row, row_key_(row));
  }

  const std::vector<tables::SiteRow>& sites_;
  const RowKey& row_key_;
  size_t segment_count_ = 0;
  std::vector<int64_t> time_of_site_;
};

// The last step counts that is not after its account's instant.
void AddCounters(const tables::Tables& tables, const Instants& at, LiveSet* live) {
  live->counters.assign(tables.counters.size(), 0);
  std::vector<int64_t> time_ns;
  for (const tables::CounterRow& counter : tables.counters) {
    const uint32_t account = RowOf(tables.sites, counter.site).account.value;
    time_ns.push_back(account < at.of_account.size() ? at.of_account[account] : kNoTime);
  }
  for (const tables::StepRow& step : tables.steps) {
    const uint32_t counter = step.counter.value;
    if (counter < time_ns.size() && step.time_ns <= time_ns[counter])
      live->counters[counter] += step.bytes;
  }
  for (size_t i = 1; i < tables.counters.size(); ++i) {
    const uint32_t segment = tables.counters[i].segment.value;
    if (segment != 0 && segment < live->segments.size())
      live->segments[segment].Back(static_cast<uint64_t>(std::exchange(live->counters[i], 0)));
  }
}

void Merge(std::vector<Gathered>& parts, const RowKey& row_key, LiveSet* live) {
  Gathered& all = parts[0];
  for (size_t part = 1; part < parts.size(); ++part) {
    for (size_t i = 0; i < parts[part].sites.size(); ++i)
      Add(all.sites[i], parts[part].sites[i]);
    for (size_t i = 0; i < parts[part].segments.size(); ++i)
      all.segments[i].Add(parts[part].segments[i]);
    for (const LiveGroup& group : parts[part].groups)
      Add(GroupOf(all, group.row, row_key(group.row)), group.sum);
  }
  live->sites = std::move(all.sites);
  live->segments = std::move(all.segments);
  live->groups = std::move(all.groups);
}

util::Result<LiveSet> ReadRows(const tables::Recording& recording,
                               const Instants& at,
                               const RowKey& row_key) {
  const tables::Tables& tables = recording.tables();
  const std::set<int64_t> times(at.of_account.begin(), at.of_account.end());
  std::vector<size_t> frames;
  uint64_t rows = 0;
  for (size_t i = 0; i < recording.frame_count(); ++i) {
    const tables::FrameZone& zone = recording.zone(i);
    const bool any = std::any_of(times.begin(), times.end(),
                                 [&](int64_t time_ns) { return zone.MayHoldLiveAt(time_ns); });
    if (!any)
      continue;
    frames.push_back(i);
    rows += zone.rows;
  }
  uint32_t wanted = tables::kBeginNs | tables::kEndNs | tables::kBytes | tables::kRoundingBytes |
                    tables::kSite | tables::kSegment;
  if (row_key)
    wanted |= tables::kAllocNs;
  const FrameReader reader(recording, at, row_key);
  std::vector<Gathered> parts(std::min(WorkersFor(rows), std::max<size_t>(frames.size(), 1)));
  for (Gathered& part : parts) {
    part.sites.resize(row_key ? 0 : tables.sites.size());
    part.segments.resize(tables.segments.size());
  }
  VRAMSCOPE_RETURN_IF_ERROR(ForEachFrame(
      recording, frames, wanted, parts.size(),
      [&](size_t worker, const AllocationFrame& frame) { reader.Read(frame, parts[worker]); }));
  LiveSet live;
  Merge(parts, row_key, &live);
  AddCounters(tables, at, &live);
  return live;
}

}  // namespace

util::Result<LiveSet> ReadLiveSet(const tables::Recording& recording,
                                  const Instants& at,
                                  const RowKey& row_key) {
  return ReadRows(recording, WithoutCheckpointed(recording.tables(), at), row_key);
}

util::Result<LiveSet> ReadLiveSetWithCheckpointed(const tables::Recording& recording,
                                                  const Instants& at) {
  return ReadRows(recording, at, {});
}

namespace {

Leaf LeafOf(const tables::Tables& tables,
            const tables::SiteRow& site,
            uint64_t bytes,
            uint64_t count) {
  Leaf leaf;
  const tables::AccountRow& of = RowOf(tables.accounts, site.account);
  leaf.device = of.device.value < tables.devices.size() ? of.device : tables::DeviceId{};
  leaf.process = of.process.value < tables.processes.size() ? of.process : tables::ProcessId{};
  leaf.site = site;
  leaf.bytes = bytes;
  leaf.count = count;
  return leaf;
}

// Those of sites, with device memory below them or without.
void ForEachSiteLeaf(const tables::Tables& tables,
                     const LiveSet& live,
                     bool unbacked,
                     const std::function<void(const Leaf&)>& sink) {
  const auto emit = [&](uint32_t site, const tables::AllocationRow* row, const LiveSum& sum) {
    if ((sum.count == 0 && sum.rounding_bytes == 0) ||
        (tables.sites[site].unbacked != 0) != unbacked)
      return;
    Leaf leaf = LeafOf(tables, tables.sites[site], sum.bytes, sum.count);
    leaf.row = row;
    if (sum.count != 0)
      sink(leaf);
    if (sum.rounding_bytes == 0)
      return;
    leaf.site = RoundingSite(leaf.site);
    leaf.bytes = sum.rounding_bytes;
    leaf.count = 0;
    sink(leaf);
  };
  for (uint32_t i = 0; i < live.sites.size(); ++i)
    emit(i, nullptr, live.sites[i]);
  for (const LiveGroup& group : live.groups)
    emit(group.row.site.value, &group.row, group.sum);
}

}  // namespace

void ForEachUnbackedLeaf(const tables::Recording& recording,
                         const LiveSet& live,
                         const std::function<void(const Leaf&)>& sink) {
  ForEachSiteLeaf(recording.tables(), live, true, sink);
}

void ForEachLeaf(const tables::Recording& recording,
                 const LiveSet& live,
                 const std::function<void(const Leaf&)>& sink) {
  const tables::Tables& tables = recording.tables();
  ForEachSiteLeaf(tables, live, false, sink);
  for (size_t i = 1; i < live.segments.size(); ++i) {
    const SegmentState& segment = live.segments[i];
    if (const uint64_t bytes = segment.FreeBytes(); bytes > 0)
      sink(LeafOf(tables, FreeSite(recording, tables.segments[i], segment.IsInUse()), bytes, 0));
  }
  for (size_t i = 1; i < live.counters.size(); ++i) {
    if (live.counters[i] <= 0)
      continue;
    Leaf leaf = LeafOf(tables, RowOf(tables.sites, tables.counters[i].site),
                       static_cast<uint64_t>(live.counters[i]), 1);
    tables::AllocationRow row;
    row.bytes = leaf.bytes;
    if (leaf.process.value == 0 || format::IsSlack(leaf.site.part))
      leaf.count = 0;
    else
      leaf.row = &row;
    sink(leaf);
  }
}

util::Result<std::vector<uint64_t>> DeviceTotals(const tables::Recording& recording,
                                                 const Instants& at) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto live, ReadLiveSet(recording, at));
  const tables::Tables& tables = recording.tables();
  std::vector<uint64_t> totals(tables.devices.size());
  ForEachLeaf(recording, live, [&](const Leaf& leaf) { totals[leaf.device.value] += leaf.bytes; });
  return totals;
}

}  // namespace vramscope::query
