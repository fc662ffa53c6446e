// SPDX-License-Identifier: Apache-2.0
#include "output/export/live_stacks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "format/memory_words.h"
#include "query/live_set.h"
#include "util/text_cell.h"

namespace vramscope::output {
namespace {

using Key = std::tuple<tables::DeviceId,
                       tables::ProcessId,
                       tables::StackId,
                       std::string,
                       std::string,
                       std::string>;

}  // namespace

std::string InBrackets(std::string_view text) {
  std::string name = util::OneLine(text);
  std::replace(name.begin(), name.end(), ';', ' ');
  return "[" + name + "]";
}

tables::StackId StackOf(const tables::SiteRow& site) {
  for (const tables::StackId stack : {site.stack, site.forward_stack, site.native_stack}) {
    if (stack.value != 0)
      return stack;
  }
  return {};
}

std::string BelowStack(const query::DimensionTexts& texts,
                       const tables::SiteRow& site,
                       const tables::AllocationRow* row) {
  const auto category = static_cast<format::Category>(site.category);
  if (StackOf(site).value != 0) {
    if (category == format::Category::kDriver)
      return "[driver]";
    return site.stack.value == 0 && site.forward_stack.value != 0 ? "[backward]" : "";
  }
  const std::string owner = InBrackets(texts.Of(query::Dimension::kOwner, site, row));
  return category == format::Category::kUnknown
             ? owner
             : owner + ";" + InBrackets(format::CategoryName(category));
}

util::Result<LiveStacks> ReadLiveStacks(const tables::Recording& recording,
                                        const query::Instant& at) {
  query::ReportQuery query;
  query.at = at;
  query.by = {query::Dimension::kCategory};
  const util::Result<query::Report> report = query::MakeReport(recording, query);
  if (!report.ok())
    return report.status();
  const util::Result<query::Instants> instants = query::ResolveInstant(recording, at);
  if (!instants.ok())
    return instants.status();
  const util::Result<query::LiveSet> live = query::ReadLiveSet(recording, *instants);
  if (!live.ok())
    return live.status();

  LiveStacks found;
  found.devices = report->devices;
  const auto is_shown = [&](tables::DeviceId device) {
    return std::any_of(found.devices.begin(), found.devices.end(),
                       [&](const query::DeviceReport& shown) { return shown.device == device; });
  };
  const query::DimensionTexts texts(recording);
  std::map<Key, std::pair<uint64_t, uint64_t>> sums;
  query::ForEachLeaf(recording, *live, [&](const query::Leaf& leaf) {
    if (leaf.bytes == 0 || !is_shown(leaf.device))
      return;
    const tables::SiteRow& site = leaf.site;
    std::string below = BelowStack(texts, site, leaf.row);
    auto& [bytes, count] = sums[{leaf.device, leaf.process, StackOf(site), std::move(below),
                                 format::CategoryName(static_cast<format::Category>(site.category)),
                                 texts.Of(query::Dimension::kModule, site, leaf.row)}];
    bytes += leaf.bytes;
    count += leaf.count;
  });
  for (const query::DeviceReport& device : found.devices) {
    if (device.in_transit_bytes > 0) {
      sums[{device.device, {}, {}, "[in transit]", "driver", ""}].first +=
          static_cast<uint64_t>(device.in_transit_bytes);
    }
  }
  for (const auto& [key, sum] : sums) {
    const auto& [device, process, stack, below, category, module] = key;
    found.stacks.push_back(
        {device, process, stack, below, category, module, sum.first, sum.second});
  }
  return found;
}

}  // namespace vramscope::output
