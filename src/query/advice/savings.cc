// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "query/advice/advice.h"
#include "query/advice/blocks.h"
#include "query/advice/rules.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

constexpr size_t kMostSavings = 5;
// A smaller saving is not worth a change.
constexpr uint64_t kLeastShareOfPeak = 100;
constexpr char kAllocated[] = "allocated";

struct Found {
  Saving saving;
  BlockChanges changes;
};

std::vector<NamedBytes> CategoriesAt(const tables::Tables& tables,
                                     const LiveBlocks& blocks,
                                     int64_t time_ns) {
  std::map<format::Category, NamedBytes> sums;
  for (const LiveBlock& block : blocks.all) {
    if (block.begin_ns > time_ns || time_ns >= block.end_ns)
      continue;
    NamedBytes& sum = sums[RowOf(tables.sites, block.site).category];
    sum.bytes += block.bytes;
    ++sum.count;
  }
  for (const CountedStep& step : blocks.counted) {
    if (step.time_ns <= time_ns)
      sums[RowOf(tables.sites, step.site).category].bytes += static_cast<uint64_t>(step.bytes);
  }
  std::vector<NamedBytes> out;
  for (auto& [category, sum] : sums) {
    sum.name = format::CategoryName(category);
    out.push_back(std::move(sum));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const NamedBytes& a, const NamedBytes& b) { return a.bytes > b.bytes; });
  return out;
}

void Append(BlockChanges more, BlockChanges* all) {
  std::move(more.absences.begin(), more.absences.end(), std::back_inserter(all->absences));
  std::move(more.additions.begin(), more.additions.end(), std::back_inserter(all->additions));
}

}  // namespace

util::Result<Savings> FindSavings(const tables::Recording& recording,
                                  std::optional<uint64_t> budget_bytes) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const LiveBlocks blocks, ReadBlocks(recording));
  const tables::Tables& tables = recording.tables();
  const tables::AccountRow& account = RowOf(tables.accounts, blocks.account);
  const BlockTotal total(blocks);
  const BlockTotal::Highest peak = total.With({});
  Savings out;
  out.device = account.device;
  out.process = account.process;
  out.allocated_peak_bytes = peak.bytes;
  out.allocated_peak_ns = peak.time_ns;
  out.categories = CategoriesAt(tables, blocks, peak.time_ns);

  const IterationTimes times(tables);
  UserFrames lines(recording);
  const RuleInput input{recording, blocks, times.Of(account.process), lines};
  std::vector<Found> found;
  for (const Rule& rule : AdviceRules()) {
    for (Proposal& proposal : rule.propose(input)) {
      const OtherPeak lowered =
          proposal.other ? *proposal.other
                         : OtherPeak{kAllocated, peak.bytes, total.With(proposal.changes).bytes};
      if (lowered.bytes >= lowered.recorded_bytes ||
          lowered.recorded_bytes - lowered.bytes < lowered.recorded_bytes / kLeastShareOfPeak)
        continue;
      found.push_back({{.rule = rule.name,
                        .change = std::move(proposal.change),
                        .why = std::move(proposal.why),
                        .condition = std::move(proposal.condition),
                        .place = std::move(proposal.place),
                        .lowers = lowered.lowers,
                        .confidence = rule.confidence,
                        .saves_bytes = lowered.recorded_bytes - lowered.bytes,
                        .peak_bytes = lowered.bytes},
                       std::move(proposal.changes)});
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return a.saving.saves_bytes > b.saving.saves_bytes;
  });
  found.resize(std::min(found.size(), kMostSavings));
  // A change may need what another one makes unnecessary: such do not add up.
  BlockChanges all;
  out.together_bytes = peak.bytes;
  for (Found& each : found) {
    out.savings.push_back(std::move(each.saving));
    BlockChanges with = all;
    Append(std::move(each.changes), &with);
    if (const uint64_t bytes = total.With(with).bytes; bytes < out.together_bytes) {
      out.together_bytes = bytes;
      all = std::move(with);
    }
  }
  for (const tables::PeakRow& row : tables.peaks) {
    if (row.device == account.device)
      out.device_peak_bytes = std::max(out.device_peak_bytes, row.bytes);
  }
  if (budget_bytes) {
    out.budget_bytes = budget_bytes;
    out.over_bytes = out.device_peak_bytes - std::min(*budget_bytes, out.device_peak_bytes);
  }
  return out;
}

}  // namespace vramscope::query
