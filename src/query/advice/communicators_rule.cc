// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "query/advice/rules.h"
#include "query/core/live_set.h"
#include "query/core/peaks.h"
#include "tables/row_of.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

using tables::SiteRow;

// A pair of ranks that sends and receives has a communicator of its own in the same group.
bool IsPointToPoint(std::string_view function, std::string_view file) {
  constexpr std::string_view kFunctions[] = {"send", "recv", "isend", "irecv", "batch_isend_irecv"};
  return file.ends_with("torch/distributed/distributed_c10d.py") &&
         std::ranges::find(kFunctions, function) != std::end(kFunctions);
}

// "0xab of 8 ranks": 8; 0: not known.
uint64_t RanksOf(std::string_view communicator) {
  constexpr std::string_view kOf = " of ", kRanks = " ranks";
  const size_t of = communicator.find(kOf);
  if (of == std::string_view::npos || !communicator.ends_with(kRanks))
    return 0;
  communicator.remove_suffix(kRanks.size());
  return util::WholeNumber<uint64_t>(communicator.substr(of + kOf.size())).value_or(0);
}

using Members = std::set<tables::ProcessId>;

// The processes of each communicator whose ranks are all recorded, one a process. Without pairs.
std::map<std::string_view, Members> FindMembers(const RuleInput& input) {
  const tables::Tables& tables = input.recording.tables();
  StackQuestion is_pair(input.recording, IsPointToPoint);
  std::map<std::string_view, Members> members;
  std::set<std::string_view> pairs;
  for (const SiteRow& site : tables.sites) {
    if (site.communicator.value == 0)
      continue;
    const std::string_view communicator = input.recording.string(site.communicator);
    members[communicator].insert(RowOf(tables.accounts, site.account).process);
    if (is_pair.Of(site.stack))
      pairs.insert(communicator);
  }
  std::erase_if(members, [&](const auto& each) {
    const uint64_t ranks = RanksOf(each.first);
    return ranks < 2 || each.second.size() != ranks || pairs.contains(each.first);
  });
  return members;
}

}  // namespace

// ---- communicators: several of the same ranks

std::vector<Proposal> ProposeSharingGroups(const RuleInput& input) {
  const tables::Tables& tables = input.recording.tables();
  const std::map<std::string_view, Members> members = FindMembers(input);
  if (members.empty())
    return {};
  const auto live = ReadLiveSet(input.recording, AtPeaks(tables, tables.peaks));
  if (!live.ok())
    return {};
  std::map<std::string_view, uint64_t> bytes;  // of this process, at its device's peak
  std::map<tables::FrameId, uint64_t> lines;
  ForEachLeaf(input.recording, *live, [&](const Leaf& leaf) {
    const std::string_view communicator = input.recording.string(leaf.site.communicator);
    if (leaf.site.account == input.blocks.account && members.contains(communicator)) {
      bytes[communicator] += leaf.bytes;
      lines[input.lines.Of(leaf.site.place)] += leaf.bytes;
    }
  });
  std::map<Members, std::vector<std::string_view>> alike;
  for (const auto& [communicator, ranks] : members) {
    if (bytes.contains(communicator))
      alike[ranks].push_back(communicator);
  }
  std::vector<Proposal> proposals;
  for (auto& [ranks, communicators] : alike) {
    if (communicators.size() < 2)
      continue;
    // The largest one stays.
    std::ranges::stable_sort(communicators, std::ranges::greater(),
                             [&](std::string_view each) { return bytes[each]; });
    const std::set<std::string_view> extra(communicators.begin() + 1, communicators.end());
    const auto is_extra = [&](const SiteRow& site) {
      return site.account == input.blocks.account &&
             extra.contains(input.recording.string(site.communicator));
    };
    const auto peaks = FindPeaksWithout(input.recording, is_extra);
    if (!peaks.ok())
      continue;
    Proposal proposal;
    proposal.place = PlaceText(input, lines);
    proposal.change = fmt::format("use one process group in place of {} of the same {} ranks",
                                  communicators.size(), ranks.size());
    proposal.why = fmt::format("each has a communicator of NCCL's with buffers of its own: {}",
                               communicators.front());
    for (size_t i = 1; i < communicators.size(); ++i)
      proposal.why += fmt::format(", {}", communicators[i]);
    proposal.condition = "their collectives do not have to run at the same time";
    proposal.other = DevicePeakWith(input, *peaks);
    proposals.push_back(std::move(proposal));
  }
  return proposals;
}

}  // namespace vramscope::query
