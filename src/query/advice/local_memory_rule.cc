// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "query/advice/rules.h"
#include "query/core/live_set.h"
#include "query/core/peaks.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

// Less may be the code that a first launch loads.
constexpr uint64_t kLeastLocalBytes = uint64_t{100} << 20;

// "walk" of "cuLaunchKernel walk"; empty where several calls took the memory together.
std::string_view KernelOf(std::string_view trigger) {
  const size_t space = trigger.find(' ');
  if (space == std::string_view::npos || trigger.find(" + ") != std::string_view::npos)
    return {};
  return trigger.substr(space + 1);
}

}  // namespace

// ---- local_memory: what one kernel's launch made the driver keep

std::vector<Proposal> ProposeOtherKernels(const RuleInput& input) {
  const tables::Tables& tables = input.recording.tables();
  const auto is_launch = [&](const tables::SiteRow& site) {
    return site.account == input.blocks.account && site.part == format::Part::kLaunch;
  };
  if (std::ranges::none_of(tables.sites, is_launch))
    return {};
  const auto live = ReadLiveSet(input.recording, AtPeaks(tables, tables.peaks));
  if (!live.ok())
    return {};
  std::map<std::string_view, uint64_t> bytes;  // by trigger
  std::map<tables::FrameId, uint64_t> lines;   // of the large ones
  ForEachLeaf(input.recording, *live, [&](const Leaf& leaf) {
    if (!is_launch(leaf.site))
      return;
    bytes[input.recording.string(leaf.site.trigger)] += leaf.bytes;
    if (leaf.bytes >= kLeastLocalBytes)
      lines[input.lines.Of(leaf.site.place)] += leaf.bytes;
  });
  std::erase_if(bytes, [](const auto& each) { return each.second < kLeastLocalBytes; });
  // Without the largest of several kernels, the next one takes as much as it needs.
  if (bytes.size() != 1)
    return {};
  const std::string_view trigger = bytes.begin()->first;
  const std::string_view kernel = KernelOf(trigger);
  const auto peaks = FindPeaksWithout(input.recording, [&](const tables::SiteRow& site) {
    return is_launch(site) && input.recording.string(site.trigger) == trigger;
  });
  if (kernel.empty() || !peaks.ok())
    return {};
  Proposal proposal;
  proposal.place = PlaceText(input, lines);
  proposal.change = fmt::format(
      "do without the kernel {}, such as by leaving it out when kernels are tuned", kernel);
  proposal.why =
      "its first launch made the driver reserve local memory for all threads of the GPU, and keep "
      "it";
  proposal.condition = "no other kernel needs as much local memory";
  proposal.other = DevicePeakWith(input, *peaks);
  return {std::move(proposal)};
}

}  // namespace vramscope::query
