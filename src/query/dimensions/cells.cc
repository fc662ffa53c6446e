// SPDX-License-Identifier: Apache-2.0
#include "query/dimensions/cells.h"

#include <map>
#include <utility>

#include "query/dimensions/dimensions.h"
#include "tables/row_of.h"

namespace vramscope::query {

using format::Category;
using format::Part;

tables::SiteRow RoundingSite(const tables::SiteRow& site) {
  tables::SiteRow rounding = site;
  rounding.backing = 0;
  rounding.part = Part::kRounding;
  rounding.category = Category::kRounding;
  return rounding;
}

tables::SiteRow FreeSite(const tables::Recording& recording,
                         const tables::SegmentRow& segment,
                         bool in_use) {
  tables::SiteRow site = RowOf(recording.tables().sites, segment.site);
  site.backing = 0;
  if (in_use)
    site.part = segment.part_in_use;
  const Category category = format::PartCategory(site.part);
  if (category != Category::kUnknown)
    site.category = category;
  if (!IsFree(site.part))
    return site;
  // Its tag stays: the name of its pool.
  site.module = site.module_class = site.parameter = {};
  site.thread = {};
  site.phase = format::Phase::kNone;
  return site;
}

tables::StringId PyTorchOwner(const tables::Recording& recording) {
  tables::StringId last;
  for (const tables::SiteRow& site : recording.tables().sites) {
    // Neighbours mostly have one owner.
    if (site.owner == last)
      continue;
    last = site.owner;
    if (recording.string(last) == "PyTorch")
      return last;
  }
  return {};
}

AllocatedRule::AllocatedRule(const tables::Tables& tables) : accounts_(tables.accounts.size()) {
  for (size_t i = 0; i < accounts_.size(); ++i)
    accounts_[i].is_process = tables.accounts[i].process.value != 0;
  for (const tables::SiteRow& site : tables.sites) {
    if (site.account.value >= accounts_.size())
      continue;
    Account& account = accounts_[site.account.value];
    account.has_blocks = account.has_blocks || IsBlock(site);
    account.has_segments = account.has_segments || site.backing != 0;
  }
  // Of pools the driver says what they hold.
  for (const tables::CounterRow& counter : tables.counters) {
    const uint32_t account = RowOf(tables.sites, counter.site).account.value;
    if (counter.segment.value != 0 && account < accounts_.size())
      accounts_[account].has_segments = true;
  }
}

bool AllocatedRule::IsAllocated(const tables::SiteRow& site) const {
  if (IsBlock(site))
    return true;
  const auto part = site.part;
  const uint32_t account = site.account.value;
  if (site.backing != 0 || account >= accounts_.size() || accounts_[account].has_blocks ||
      !accounts_[account].is_process || !IsUse(part) ||
      format::PartCategory(part) == Category::kDriver)
    return false;
  // NVML's figure beyond the allocations.
  return part != Part::kBeforeRecording || site.estimated == tables::Estimated::kExact;
}

AllocatedSites::AllocatedSites(const tables::Tables& tables, tables::AccountId account) {
  const AllocatedRule rule(tables);
  for (const tables::SiteRow& site : tables.sites) {
    sites_.push_back(site.account == account && site.unbacked == 0 && rule.IsAllocated(site));
    rounding_.push_back(rule.IsAllocated(RoundingSite(site)));
  }
}

bool AllocatedRule::IsReserved(const tables::SiteRow& site) const {
  const uint32_t account = site.account.value;
  if (site.backing != 0 || account >= accounts_.size() || !accounts_[account].has_segments)
    return false;
  const auto part = site.part;
  return IsFree(part) || part == Part::kUncut || site.allocator.value != 0;
}

Cells::Cells(const tables::Recording& recording) {
  Fill(recording, [](const tables::SiteRow&) { return 0; });
}

Cells::Cells(const tables::Recording& recording,
             const std::function<bool(const tables::SiteRow& site)>& selects) {
  Fill(recording, [&](const tables::SiteRow& site) { return selects(site) ? 1u : 0u; });
}

Cells::Cells(const tables::Recording& recording, Dimension by) {
  const DimensionValues values(recording);
  std::map<uint64_t, uint32_t> by_number;
  std::map<std::string, uint32_t> by_text;
  Fill(recording, [&](const tables::SiteRow& site) {
    const auto [known, added] = by_number.try_emplace(values.Id(by, site, nullptr), 0);
    if (added) {
      std::string text = values.Of(by, site, nullptr);
      const auto [group, is_new] = by_text.try_emplace(text, static_cast<uint32_t>(groups_.size()));
      if (is_new)
        groups_.push_back(std::move(text));
      known->second = group->second;
    }
    return known->second;
  });
}

void Cells::Fill(const tables::Recording& recording, const GroupOf& group_of) {
  const tables::Tables& tables = recording.tables();
  const AllocatedRule rule(tables);
  std::map<Cell, uint32_t> ids;
  const auto intern = [&](const tables::SiteRow& site) {
    Cell cell;
    cell.account = site.account.value < tables.accounts.size() ? site.account : tables::AccountId{};
    (site.unbacked != 0 ? cell.unbacked_of : cell.device) =
        tables.accounts[cell.account.value].device;
    cell.owner = site.owner;
    cell.part = site.part;
    cell.category = site.category;
    cell.block = IsBlock(site);
    cell.backward = site.phase == format::Phase::kBackward;
    cell.allocated = rule.IsAllocated(site);
    cell.reserved = rule.IsReserved(site);
    cell.estimated = site.estimated;
    cell.stands_for = site.stands_for;
    cell.group = group_of(site);
    const auto [found, added] = ids.try_emplace(cell, static_cast<uint32_t>(cells_.size()));
    if (added)
      cells_.push_back(cell);
    return found->second;
  };
  sites_.reserve(tables.sites.size());
  for (const tables::SiteRow& site : tables.sites)
    sites_.push_back({intern(site), intern(RoundingSite(site))});
  segments_.reserve(tables.segments.size());
  for (const tables::SegmentRow& segment : tables.segments) {
    segments_.push_back(
        {intern(FreeSite(recording, segment, false)), intern(FreeSite(recording, segment, true))});
  }
}

}  // namespace vramscope::query
