// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "query/advice/rules.h"
#include "query/dimensions/cells.h"
#include "tables/imported.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Phase;
using tables::SiteRow;

std::vector<int64_t> ForwardTimes(const RuleInput& input) {
  std::vector<int64_t> times;
  for (const LiveBlock& block : input.blocks.all) {
    if (SiteOf(input, block).phase == Phase::kForward)
      times.push_back(block.alloc_ns);
  }
  return times;
}

std::optional<int64_t> NextOf(const std::vector<int64_t>& times, int64_t after_ns) {
  const auto found = std::upper_bound(times.begin(), times.end(), after_ns);
  return found == times.end() ? std::nullopt : std::optional(*found);
}

// ---- zero_grad: gradients that outlive their step

// They may step at different times, so that one adds up gradients over the other's steps.
bool HasOptimizersOfSeveralClasses(const RuleInput& input, tables::ProcessId process) {
  const tables::Tables& tables = input.recording.tables();
  const std::string_view classes = tables::NoteOf(input.recording, tables::kOptimizersNote);
  return RowOf(tables.processes, process).iterations_by != tables::IterationsBy::kSteps ||
         classes.find(',') != std::string_view::npos;
}

// By operator and size, when a backward freed what it made: of a gradient that is there already, a
// second one is made and added to it.
class AddedGradients {
 public:
  explicit AddedGradients(const RuleInput& input) : input_(input) {
    for (const LiveBlock& block : input.blocks.all) {
      const SiteRow& site = SiteOf(input, block);
      if (site.phase == Phase::kBackward && site.category != Category::kGradient)
        made_[KeyOf(block)].emplace_back(block.alloc_ns, block.end_ns);
    }
  }
  std::optional<int64_t> FreedAfter(const LiveBlock& gradient, int64_t after_ns) const {
    const auto made = made_.find(KeyOf(gradient));
    if (made == made_.end())
      return std::nullopt;
    const auto next =
        std::upper_bound(made->second.begin(), made->second.end(), std::pair(after_ns, INT64_MAX));
    return next == made->second.end() ? std::nullopt : std::optional(next->second);
  }

 private:
  using Key = std::tuple<uint32_t, uint32_t, uint32_t, uint64_t>;
  Key KeyOf(const LiveBlock& block) const {
    const SiteRow& site = SiteOf(input_, block);
    return {site.module.value, site.stack.value, site.forward_stack.value, block.bytes};
  }

  const RuleInput& input_;
  std::map<Key, std::vector<std::pair<int64_t, int64_t>>> made_;  // allocated, freed
};

// ---- state_dict: a checkpoint that stays after it was copied

bool IsLoading(std::string_view function, std::string_view file) {
  return (function == "load" && file.ends_with("torch/serialization.py")) ||
         file.ends_with("safetensors/torch.py");
}

// Whether most of the bytes are as many as those of a parameter or buffer each.
bool AreOfModel(const RuleInput& input, const std::vector<size_t>& loaded) {
  constexpr uint64_t kTenth = 10;
  std::map<uint64_t, size_t> sizes;
  for (const LiveBlock& block : input.blocks.all) {
    const Category category = SiteOf(input, block).category;
    if (category == Category::kParameter || category == Category::kBuffer)
      ++sizes[block.bytes];
  }
  uint64_t bytes = 0, other_bytes = 0;
  for (const size_t number : loaded) {
    const uint64_t size = input.blocks.all[number].bytes;
    bytes += size;
    const auto found = sizes.find(size);
    if (found == sizes.end() || found->second == 0)
      other_bytes += size;
    else
      --found->second;
  }
  return other_bytes <= bytes / kTenth;
}

}  // namespace

std::vector<Proposal> ProposeDroppingGradients(const RuleInput& input) {
  constexpr int64_t kFewestKept = 3;
  const tables::Tables& tables = input.recording.tables();
  const tables::ProcessId process = RowOf(tables.accounts, input.blocks.account).process;
  const ProcessIterations& iterations = input.iterations;
  // A graph keeps its addresses.
  if (iterations.count() - iterations.first() < kFewestKept ||
      HasOptimizersOfSeveralClasses(input, process) ||
      std::ranges::any_of(tables.graphs,
                          [&](const auto& graph) { return graph.process == process; }))
    return {};
  const std::vector<int64_t> forward_ns = ForwardTimes(input);
  const AddedGradients added(input);
  Proposal proposal;
  std::map<tables::FrameId, uint64_t> lines;
  std::set<int64_t> outlived;  // iterations
  for (size_t i = 0; i < input.blocks.all.size(); ++i) {
    const LiveBlock& block = input.blocks.all[i];
    const SiteRow& site = SiteOf(input, block);
    // Buckets that are gradients are not made in a backward.
    if (site.category != Category::kGradient || site.phase != Phase::kBackward)
      continue;
    const int64_t begin = std::max(iterations.NumberAt(block.alloc_ns), iterations.first());
    for (int64_t k = begin; k + 1 < iterations.count(); ++k) {
      const int64_t step_ns = iterations.EndOf(k);
      const auto forward = NextOf(forward_ns, step_ns);
      const auto backward = NextOf(input.blocks.backward_ns, step_ns);
      if (!forward || !backward || block.end_ns <= step_ns)
        break;
      // It is zeroed, or dropped when the next backward begins. Otherwise it is dropped in time, or
      // added to. One optimizer does the same with all.
      const bool stays = block.end_ns > iterations.BeginOf(iterations.count() - 1);
      if (block.end_ns <= *forward || (!stays && block.end_ns > *backward))
        return {};
      // Each needs an allocation of the next backward, but in a damaged file.
      if (proposal.changes.absences.size() == input.blocks.all.size())
        return {};
      const auto freed = added.FreedAfter(block, step_ns);
      proposal.changes.absences.push_back(
          {i, step_ns, freed && *freed <= iterations.EndOf(k + 1) ? *freed : *backward});
      lines[input.lines.Of(site.place)] += block.bytes;
      outlived.insert(k);
    }
  }
  // All iterations do the same.
  if (outlived.size() + 1 < static_cast<size_t>(iterations.count() - iterations.first()))
    return {};
  proposal.place = PlaceText(input, lines);
  proposal.change =
      "call optimizer.zero_grad() after each step, without set_to_none=False: gradients are "
      "dropped";
  proposal.why = "the gradients of each step still live in the next forward";
  proposal.condition = "nothing reads them, or adds to them, after the step";
  return {std::move(proposal)};
}

std::vector<Proposal> ProposeDroppingStateDicts(const RuleInput& input) {
  StackQuestion is_loading(input.recording, IsLoading);
  const std::vector<int64_t> forward_ns = ForwardTimes(input);
  Proposal proposal;
  std::map<tables::FrameId, uint64_t> lines;
  std::vector<size_t> loaded;
  for (size_t i = 0; i < input.blocks.all.size(); ++i) {
    const LiveBlock& block = input.blocks.all[i];
    const SiteRow& site = SiteOf(input, block);
    if (!IsPassing(site.category) || !is_loading.Of(site.stack))
      continue;
    const auto forward = NextOf(forward_ns, block.alloc_ns);
    if (!forward || block.end_ns <= *forward)
      continue;
    loaded.push_back(i);
    proposal.changes.absences.push_back({i, *forward, block.end_ns});
    lines[input.lines.Of(site.place)] += block.bytes;
  }
  if (loaded.empty() || !AreOfModel(input, loaded))
    return {};
  proposal.place = PlaceText(input, lines);
  proposal.change =
      fmt::format("`del` the state dict of {} after load_state_dict()", proposal.place);
  proposal.why = "it has the sizes of parameters, and stays beside them";
  proposal.condition = "load_state_dict() copied it, and nothing else reads it";
  return {std::move(proposal)};
}

}  // namespace vramscope::query
