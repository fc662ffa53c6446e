// SPDX-License-Identifier: Apache-2.0
#include "query/cells.h"

#include <map>
#include <utility>

#include "query/texts.h"
#include "tables/row_of.h"

namespace vramscope::query {

using format::Category;
using format::Part;

tables::SiteRow RoundingSite(const tables::SiteRow& site) {
  tables::SiteRow rounding = site;
  rounding.backing = 0;
  rounding.part = static_cast<uint8_t>(Part::kRounding);
  rounding.category = static_cast<uint8_t>(Category::kRounding);
  return rounding;
}

tables::SiteRow FreeSite(const tables::Recording& recording,
                         const tables::SegmentRow& segment,
                         bool in_use) {
  tables::SiteRow site = RowOf(recording.tables().sites, segment.site);
  site.backing = 0;
  if (in_use)
    site.part = segment.part_in_use;
  const Category category = format::PartCategory(static_cast<Part>(site.part));
  if (category != Category::kUnknown)
    site.category = static_cast<uint8_t>(category);
  return site;
}

Cells::Cells(const tables::Recording& recording) {
  Fill(recording, [](const tables::SiteRow&) { return 0; });
}

Cells::Cells(const tables::Recording& recording, Dimension by) {
  const DimensionTexts texts(recording);
  std::map<uint64_t, uint32_t> by_number;
  std::map<std::string, uint32_t> by_text;
  Fill(recording, [&](const tables::SiteRow& site) {
    const auto [known, added] = by_number.try_emplace(texts.Number(by, site, nullptr), 0);
    if (added) {
      std::string text = texts.Of(by, site, nullptr);
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
  std::map<Cell, uint32_t> ids;
  const auto intern = [&](const tables::SiteRow& site) {
    Cell cell;
    cell.account = site.account.value < tables.accounts.size() ? site.account : tables::AccountId{};
    cell.device = tables.accounts[cell.account.value].device;
    cell.owner = site.owner;
    cell.part = static_cast<Part>(site.part);
    cell.category = static_cast<Category>(site.category);
    cell.block = IsBlock(site);
    cell.backward = site.phase == static_cast<uint8_t>(format::Phase::kBackward);
    cell.estimated = static_cast<tables::Estimated>(site.estimated);
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
