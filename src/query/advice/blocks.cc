// SPDX-License-Identifier: Apache-2.0
#include "query/advice/blocks.h"

#include <algorithm>
#include <tuple>

#include "query/core/parallel.h"
#include "query/core/peaks.h"
#include "query/dimensions/cells.h"
#include "tables/row_of.h"

namespace vramscope::query {
util::Result<LiveBlocks> ReadBlocks(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  VRAMSCOPE_ASSIGN_OR_RETURN(const LargestAccount largest, FindLargestAccount(recording));
  if (largest.bytes == 0)
    return util::Status::Error("no allocation is recorded, so there is nothing to advise on");
  LiveBlocks blocks;
  blocks.account = largest.account;
  const AllocatedSites sites(tables, blocks.account);
  std::vector<size_t> frames;
  for (size_t i = 0; i < recording.frame_count(); ++i) {
    if (recording.zone(i).MayHoldAccount(blocks.account))
      frames.push_back(i);
  }
  const uint32_t wanted = tables::kBeginNs | tables::kEndNs | tables::kAllocNs | tables::kBytes |
                          tables::kRoundingBytes | tables::kSite;
  VRAMSCOPE_RETURN_IF_ERROR(
      ForEachFrame(recording, frames, wanted, 1, [&](size_t, const tables::AllocationFrame& frame) {
        for (size_t i = 0; i < frame.rows; ++i) {
          const uint32_t site = frame.site[i];
          if (!sites.Has(site) || frame.begin_ns[i] >= frame.end_ns[i])
            continue;
          const uint64_t rounding = sites.HasRounding(site) ? 0 : frame.rounding_bytes[i];
          blocks.all.push_back({frame.begin_ns[i], frame.end_ns[i], frame.alloc_ns[i],
                                frame.bytes[i] - rounding, tables::SiteId{site}});
          if (tables.sites[site].phase == format::Phase::kBackward)
            blocks.backward_ns.push_back(frame.alloc_ns[i]);
        }
      }));
  for (const tables::StepRow& step : tables.steps) {
    const tables::CounterRow& counter = RowOf(tables.counters, step.counter);
    if (sites.HasCounter(counter))
      blocks.counted.push_back({step.time_ns, step.bytes, counter.site});
  }
  std::stable_sort(blocks.all.begin(), blocks.all.end(),
                   [](const LiveBlock& a, const LiveBlock& b) {
                     return std::tuple(a.alloc_ns, a.begin_ns) < std::tuple(b.alloc_ns, b.begin_ns);
                   });
  std::sort(blocks.backward_ns.begin(), blocks.backward_ns.end());
  return blocks;
}

BlockTotal::BlockTotal(const LiveBlocks& blocks) : blocks_(blocks) {
  steps_.reserve(2 * blocks.all.size());
  for (const LiveBlock& block : blocks.all) {
    steps_.push_back({block.begin_ns, static_cast<int64_t>(block.bytes)});
    steps_.push_back({block.end_ns, -static_cast<int64_t>(block.bytes)});
  }
  for (const CountedStep& step : blocks.counted)
    steps_.push_back({step.time_ns, step.bytes});
  Sort(&steps_);
}

void BlockTotal::Sort(std::vector<Step>* steps) {
  std::sort(steps->begin(), steps->end(),
            [](const Step& a, const Step& b) { return a.time_ns < b.time_ns; });
}

BlockTotal::Highest BlockTotal::With(BlockChanges changes) const {
  std::vector<Absence>& absences = changes.absences;
  std::sort(absences.begin(), absences.end(), [](const Absence& a, const Absence& b) {
    return std::pair(a.block, a.from_ns) < std::pair(b.block, b.from_ns);
  });
  std::vector<Step> steps;
  for (size_t i = 0; i < absences.size();) {
    const LiveBlock& block = blocks_.all[absences[i].block];
    int64_t gone_until_ns = block.begin_ns;
    const size_t number = absences[i].block;
    for (; i < absences.size() && absences[i].block == number; ++i) {
      const int64_t from_ns = std::max(absences[i].from_ns, gone_until_ns);
      const int64_t to_ns = std::min(absences[i].to_ns, block.end_ns);
      if (from_ns >= to_ns)
        continue;
      steps.push_back({from_ns, -static_cast<int64_t>(block.bytes)});
      steps.push_back({to_ns, static_cast<int64_t>(block.bytes)});
      gone_until_ns = to_ns;
    }
  }
  for (const Addition& addition : changes.additions) {
    steps.push_back({addition.from_ns, static_cast<int64_t>(addition.bytes)});
    steps.push_back({addition.to_ns, -static_cast<int64_t>(addition.bytes)});
  }
  Sort(&steps);
  Highest highest;
  int64_t total = 0;
  auto own = steps_.begin();
  auto changed = steps.begin();
  while (own != steps_.end() || changed != steps.end()) {
    const int64_t time_ns = std::min(own != steps_.end() ? own->time_ns : INT64_MAX,
                                     changed != steps.end() ? changed->time_ns : INT64_MAX);
    for (; own != steps_.end() && own->time_ns == time_ns; ++own)
      total += own->bytes;
    for (; changed != steps.end() && changed->time_ns == time_ns; ++changed)
      total += changed->bytes;
    if (total > static_cast<int64_t>(highest.bytes))
      highest = {static_cast<uint64_t>(total), time_ns};
  }
  return highest;
}

}  // namespace vramscope::query
