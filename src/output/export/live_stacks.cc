// SPDX-License-Identifier: Apache-2.0
#include "output/export/live_stacks.h"

#include <algorithm>

#include "format/memory_words.h"
#include "query/core/live_set.h"
#include "util/text.h"

namespace vramscope::output {

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

LiveStack LiveStackOf(tables::DeviceId device,
                      tables::ProcessId process,
                      const tables::SiteRow& site) {
  LiveStack live;
  live.device = device;
  live.process = process;
  live.stack = StackOf(site);
  live.category = site.category;
  live.module = site.module;
  if (live.stack.value == 0) {
    live.owner = site.owner;
    live.part = site.part;
  }
  live.is_backward = site.stack.value == 0 && site.forward_stack.value != 0;
  return live;
}

std::vector<std::string> BelowStack(const tables::Recording& recording, const LiveStack& live) {
  const auto category = live.category;
  if (live.stack.value != 0) {
    if (category == format::Category::kDriver)
      return {"[driver]"};
    return live.is_backward ? std::vector<std::string>{"[backward]"} : std::vector<std::string>{};
  }
  std::vector<std::string> below = {InBrackets(
      live.owner.value != 0 ? recording.string(live.owner) : format::PartName(live.part))};
  if (category != format::Category::kUnknown)
    below.push_back(InBrackets(format::CategoryName(category)));
  return below;
}

util::Result<LiveStacks> ReadLiveStacks(const tables::Recording& recording,
                                        const query::Instant& at) {
  query::ReportQuery query;
  query.at = at;
  query.by = {query::Dimension::kCategory};
  VRAMSCOPE_ASSIGN_OR_RETURN(const query::Report report, query::MakeReport(recording, query));
  VRAMSCOPE_ASSIGN_OR_RETURN(const query::Instants instants, query::ResolveInstant(recording, at));
  VRAMSCOPE_ASSIGN_OR_RETURN(const query::LiveSet live, query::ReadLiveSet(recording, instants));

  LiveStacks found;
  found.devices = report.devices;
  std::vector<bool> is_shown(recording.tables().devices.size());
  for (const query::DeviceReport& device : found.devices) {
    is_shown[device.device.value] = true;
    if (device.in_transit_bytes > 0) {
      tables::SiteRow site;
      site.part = format::Part::kInTransit;
      site.category = format::PartCategory(format::Part::kInTransit);
      found.stacks.push_back(LiveStackOf(device.device, {}, site));
      found.stacks.back().bytes = static_cast<uint64_t>(device.in_transit_bytes);
    }
  }
  query::ForEachLeaf(recording, live, [&](const query::Leaf& leaf) {
    if (leaf.bytes == 0 || !is_shown[leaf.device.value])
      return;
    found.stacks.push_back(LiveStackOf(leaf.device, leaf.process, leaf.site));
    found.stacks.back().bytes = leaf.bytes;
    found.stacks.back().count = leaf.count;
  });
  std::vector<LiveStack>& stacks = found.stacks;
  std::sort(stacks.begin(), stacks.end(),
            [](const LiveStack& a, const LiveStack& b) { return a.Key() < b.Key(); });
  size_t kept = 0;
  for (size_t i = 1; i < stacks.size(); ++i) {
    if (stacks[i].Key() == stacks[kept].Key()) {
      stacks[kept].bytes += stacks[i].bytes;
      stacks[kept].count += stacks[i].count;
    } else {
      stacks[++kept] = stacks[i];
    }
  }
  stacks.resize(stacks.empty() ? 0 : kept + 1);
  return found;
}

}  // namespace vramscope::output
