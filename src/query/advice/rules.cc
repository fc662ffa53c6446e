// SPDX-License-Identifier: Apache-2.0
#include "query/advice/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "query/dimensions/fold_names.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Phase;
using tables::FrameId;
using tables::SiteRow;
using tables::StackId;

// Bytes by what they are counted under, for the largest.
template <class Key>
Key Largest(const std::map<Key, uint64_t>& bytes) {
  const auto found = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return found == bytes.end() ? Key() : found->first;
}

// ---- checkpoint: a repeated layer's forward runs again in the backward

// One forward of a layer: its blocks, in the order in which they were allocated.
struct LayerVisit {
  std::string_view layer;
  std::vector<size_t> blocks;
  int64_t over_ns = 0;  // when the next layer begins
};

std::vector<LayerVisit> FindVisits(const RuleInput& input) {
  std::vector<LayerVisit> visits;
  StackQuestion is_computed_again(input.recording, IsComputedAgain);
  bool goes_on = false;
  for (size_t i = 0; i < input.blocks.all.size(); ++i) {
    const LiveBlock& block = input.blocks.all[i];
    const SiteRow& site = SiteOf(input, block);
    if (site.phase != Phase::kForward || block.begin_ns != block.alloc_ns)
      continue;
    const std::string_view layer = RepeatedLayerOf(input.recording.string(site.module));
    if (!visits.empty() && goes_on && visits.back().layer != layer)
      visits.back().over_ns = block.begin_ns;
    const bool counts = !layer.empty() && !is_computed_again.Of(site.stack);
    if (counts && (!goes_on || visits.back().layer != layer))
      visits.push_back({layer, {}, 0});
    goes_on = counts;
    if (counts)
      visits.back().blocks.push_back(i);
  }
  std::erase_if(visits, [](const LayerVisit& visit) { return visit.over_ns == 0; });
  return visits;
}

// The most that a visit's blocks have at once, without those that come later.
uint64_t MostAtOnce(const RuleInput& input, const LayerVisit& visit, int64_t until_ns) {
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (const size_t number : visit.blocks) {
    const LiveBlock& block = input.blocks.all[number];
    if (block.begin_ns > until_ns)
      continue;
    steps.emplace_back(block.begin_ns, static_cast<int64_t>(block.bytes));
    steps.emplace_back(std::min(block.end_ns, visit.over_ns), -static_cast<int64_t>(block.bytes));
  }
  std::sort(steps.begin(), steps.end());
  int64_t bytes = 0, most = 0;
  for (const auto& [time_ns, step] : steps)
    most = std::max(most, bytes += step);
  return static_cast<uint64_t>(most);
}

// What a visit leaves: for the next backward, or where nothing waits for one, at all.
struct Leftover {
  std::vector<size_t> kept;  // without the layer's result, which the next layer reads
  size_t result = 0;
  uint64_t bytes = 0;            // of `kept`
  int64_t freed_ns = INT64_MAX;  // the first of it
  bool for_backward = false;
};

// The last block, but for statistics that a normalization keeps beside its result.
std::vector<size_t>::const_iterator FindResult(const RuleInput& input,
                                               const std::vector<size_t>& kept) {
  constexpr uint64_t kLeastShare = 8;
  uint64_t largest = 0;
  for (const size_t number : kept)
    largest = std::max(largest, input.blocks.all[number].bytes);
  const auto found = std::find_if(kept.rbegin(), kept.rend(), [&](size_t number) {
    return input.blocks.all[number].bytes >= largest / kLeastShare;
  });
  return std::prev(found.base());
}

Leftover LeftoverOf(const RuleInput& input, const LayerVisit& visit) {
  const std::vector<int64_t>& backward_ns = input.blocks.backward_ns;
  const auto backward = std::lower_bound(backward_ns.begin(), backward_ns.end(), visit.over_ns);
  const auto living_at = [&](int64_t time_ns) {
    std::vector<size_t> blocks;
    for (const size_t number : visit.blocks) {
      if (input.blocks.all[number].end_ns > time_ns)
        blocks.push_back(number);
    }
    return blocks;
  };
  Leftover left;
  if (backward != backward_ns.end())
    left.kept = living_at(*backward);
  left.for_backward = !left.kept.empty();
  if (left.kept.empty())
    left.kept = living_at(visit.over_ns);
  if (left.kept.empty())
    return left;
  const auto result = FindResult(input, left.kept);
  left.result = *result;
  left.kept.erase(result);
  for (const size_t number : left.kept) {
    left.bytes += input.blocks.all[number].bytes;
    left.freed_ns = std::min(left.freed_ns, input.blocks.all[number].end_ns);
  }
  return left;
}

// When the backward of each repeated layer allocated.
using LayerTimes = std::map<std::string_view, std::vector<int64_t>>;

LayerTimes BackwardTimes(const RuleInput& input) {
  LayerTimes times;
  for (const LiveBlock& block : input.blocks.all) {
    const SiteRow& site = SiteOf(input, block);
    if (site.phase == Phase::kBackward)
      times[RepeatedLayerOf(input.recording.string(site.module))].push_back(block.alloc_ns);
  }
  return times;
}

// The forward keeps nothing but its result. All is back when the layer's backward begins, which
// frees the first of it.
void Checkpoint(const RuleInput& input,
                const LayerVisit& visit,
                const std::vector<int64_t>& backward_ns,
                BlockChanges* changes) {
  const Leftover left = LeftoverOf(input, visit);
  const auto begins = std::lower_bound(backward_ns.begin(), backward_ns.end(), visit.over_ns);
  const int64_t back_ns =
      std::min(begins != backward_ns.end() ? *begins : INT64_MAX, left.freed_ns) - 1;
  if (left.kept.empty() || !left.for_backward || back_ns <= visit.over_ns)
    return;
  for (const size_t number : left.kept)
    changes->absences.push_back({number, visit.over_ns, back_ns});
  // It ends with the last result that the backward needs.
  const uint64_t most = MostAtOnce(input, visit, input.blocks.all[left.kept.back()].begin_ns);
  if (most > left.bytes)
    changes->additions.push_back({back_ns, back_ns + 1, most - left.bytes});
}

// Visits of layers that have a like, such as blocks.0 and blocks.1.
std::vector<LayerVisit> FindRepeatedVisits(const RuleInput& input) {
  std::vector<LayerVisit> visits = FindVisits(input);
  std::map<std::string, std::set<std::string_view>> layers;  // by shape
  for (const LayerVisit& visit : visits)
    layers[SplitNumbers(visit.layer).shape].insert(visit.layer);
  std::erase_if(visits, [&](const LayerVisit& visit) {
    return layers[SplitNumbers(visit.layer).shape].size() < 2;
  });
  return visits;
}

// What a proposal's blocks are, for its words.
struct LayerSums {
  std::map<FrameId, uint64_t> lines;
  std::map<std::string, uint64_t> layers;
};

LayerSums SumsOf(const RuleInput& input, const BlockChanges& changes) {
  LayerSums sums;
  for (const Absence& absence : changes.absences) {
    const LiveBlock& block = input.blocks.all[absence.block];
    const SiteRow& site = SiteOf(input, block);
    sums.lines[input.lines.Of(site.place)] += block.bytes;
    sums.layers[std::string(RepeatedLayerOf(input.recording.string(site.module)))] += block.bytes;
  }
  return sums;
}

std::vector<Proposal> ProposeCheckpoints(const RuleInput& input) {
  Proposal proposal;
  LayerTimes backward_ns = BackwardTimes(input);
  for (const LayerVisit& visit : FindRepeatedVisits(input))
    Checkpoint(input, visit, backward_ns[visit.layer], &proposal.changes);
  if (proposal.changes.absences.empty())
    return {};
  const LayerSums sums = SumsOf(input, proposal.changes);
  proposal.place = PlaceText(input, sums.lines);
  proposal.change =
      fmt::format("checkpoint {} (torch.utils.checkpoint)", LayerWords(FoldNames(sums.layers)));
  proposal.why = "their activations wait for the backward; each layer's forward runs twice";
  return {std::move(proposal)};
}

// ---- no grad: a forward whose results no backward reads

// When the layer has run twice more. A variable keeps results until the next ones replace them;
// what lives longer is a cache.
std::vector<int64_t> SecondNextVisits(const std::vector<LayerVisit>& visits) {
  std::vector<int64_t> after(visits.size(), INT64_MAX);
  std::map<std::string_view, std::array<int64_t, 2>> later;
  for (size_t i = visits.size(); i-- > 0;) {
    auto& [next_ns, second_ns] =
        later.try_emplace(visits[i].layer, std::array{INT64_MAX, INT64_MAX}).first->second;
    after[i] = std::exchange(second_ns, next_ns);
    next_ns = visits[i].over_ns;
  }
  return after;
}

std::vector<Proposal> ProposeNoGrad(const RuleInput& input) {
  // A layer that keeps less may keep keys and values for the next token.
  constexpr size_t kFewestKept = 3;
  Proposal proposal;
  const std::vector<LayerVisit> visits = FindRepeatedVisits(input);
  const std::vector<int64_t> after = SecondNextVisits(visits);
  for (size_t i = 0; i < visits.size(); ++i) {
    const Leftover left = LeftoverOf(input, visits[i]);
    if (left.kept.size() < kFewestKept || left.for_backward || left.freed_ns > after[i])
      continue;
    for (const size_t number : left.kept) {
      const LiveBlock& block = input.blocks.all[number];
      if (block.end_ns <= after[i])
        proposal.changes.absences.push_back({number, visits[i].over_ns, block.end_ns});
    }
    if (i + 1 < visits.size() && input.blocks.all[left.result].end_ns <= after[i]) {
      proposal.changes.absences.push_back(
          {left.result, visits[i + 1].over_ns, input.blocks.all[left.result].end_ns});
    }
  }
  if (proposal.changes.absences.empty())
    return {};
  const LayerSums sums = SumsOf(input, proposal.changes);
  proposal.place = PlaceText(input, sums.lines);
  proposal.change = fmt::format("run {} under torch.no_grad()", LayerWords(FoldNames(sums.layers)));
  proposal.why = "its activations wait for a backward that never comes";
  return {std::move(proposal)};
}

// ---- attention: scores of all pairs of tokens

bool IsNamedAttention(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return lower.find("atten") != std::string::npos || lower.find("attn") != std::string::npos;
}

// By module whose code calls softmax, the bytes of its largest result: scores of that size come
// before it, and their gradients after it.
std::vector<Proposal> ProposeFusedAttention(const RuleInput& input) {
  std::map<tables::StringId, uint64_t> scores;
  std::map<FrameId, uint64_t> lines;
  for (const LiveBlock& block : input.blocks.all) {
    const SiteRow& site = SiteOf(input, block);
    const FrameId line = input.lines.Of(site.place);
    const std::string_view function =
        input.recording.string(RowOf(input.recording.tables().frames, line).function);
    if (site.phase == Phase::kForward && site.module.value != 0 && IsNamedAttention(function) &&
        SourceOf(input.recording, line).find("softmax(") != std::string_view::npos) {
      scores[site.module] = std::max(scores[site.module], block.bytes);
      lines[line] += block.bytes;
    }
  }
  Proposal proposal;
  for (size_t i = 0; i < input.blocks.all.size(); ++i) {
    const LiveBlock& block = input.blocks.all[i];
    const auto found = scores.find(SiteOf(input, block).module);
    if (found != scores.end() && found->second == block.bytes)
      proposal.changes.absences.push_back({i, block.begin_ns, block.end_ns});
  }
  if (lines.empty())
    return {};
  proposal.place = PlaceText(input, lines);
  proposal.change = "compute " + proposal.place + " by torch's scaled_dot_product_attention";
  proposal.why = "it makes a score of each pair of tokens, and keeps them for the backward";
  proposal.condition = "nothing else reads the scores";
  return {std::move(proposal)};
}

// ---- fused: an optimizer's step without copies

// A step of an optimizer that has a fused form, done without it.
bool IsUnfusedStep(std::string_view function, std::string_view file) {
  constexpr std::string_view kOptimizers[] = {"adam", "adamw", "sgd", "adagrad"};
  for (const std::string_view form : {"_multi_tensor_", "_single_tensor_"}) {
    if (function.starts_with(form) && file.find("torch/optim/") != std::string_view::npos)
      return std::ranges::find(kOptimizers, function.substr(form.size())) != std::end(kOptimizers);
  }
  return false;
}

std::vector<Proposal> ProposeFusedSteps(const RuleInput& input) {
  StackQuestion is_unfused(input.recording, IsUnfusedStep);
  Proposal proposal;
  std::map<FrameId, uint64_t> lines;
  for (size_t i = 0; i < input.blocks.all.size(); ++i) {
    const LiveBlock& block = input.blocks.all[i];
    const SiteRow& site = SiteOf(input, block);
    if (site.phase != Phase::kOptimizer || site.category != Category::kTemporary ||
        !is_unfused.Of(site.stack))
      continue;
    proposal.changes.absences.push_back({i, block.begin_ns, block.end_ns});
    lines[input.lines.Of(site.place)] += block.bytes;
  }
  if (lines.empty())
    return {};
  proposal.place = PlaceText(input, lines);
  proposal.change = "give the optimizer fused=True";
  proposal.why = "its step makes copies of what it updates";
  return {std::move(proposal)};
}

// ---- buckets: DistributedDataParallel's buckets are the gradients

bool IsDistributedDataParallel(std::string_view /*function*/, std::string_view file) {
  return file.ends_with("torch/nn/parallel/distributed.py");
}

std::vector<Proposal> ProposeBucketViews(const RuleInput& input) {
  StackQuestion is_ddp(input.recording, IsDistributedDataParallel);
  bool has_buckets = false;
  std::vector<size_t> gradients;
  for (size_t i = 0; i < input.blocks.all.size(); ++i) {
    const SiteRow& site = SiteOf(input, input.blocks.all[i]);
    has_buckets =
        has_buckets || (site.category == Category::kCommunication && is_ddp.Of(site.stack));
    if (site.category == Category::kGradient && site.phase == Phase::kBackward)
      gradients.push_back(i);
  }
  if (!has_buckets)
    return {};
  // The backward still makes one gradient at a time, and copies it into its bucket.
  Proposal proposal;
  std::map<FrameId, uint64_t> lines;
  for (size_t i = 0; i + 1 < gradients.size(); ++i) {
    const LiveBlock& block = input.blocks.all[gradients[i]];
    proposal.changes.absences.push_back(
        {gradients[i], input.blocks.all[gradients[i + 1]].alloc_ns, block.end_ns});
    lines[input.lines.Of(SiteOf(input, block).place)] += block.bytes;
  }
  proposal.place = PlaceText(input, lines);
  proposal.change = "give DistributedDataParallel gradient_as_bucket_view=True";
  proposal.why = "gradients are there twice: as tensors, and in the buckets that ranks exchange";
  return {std::move(proposal)};
}

// ---- what outlives its iteration

// The iteration in which a block was allocated; none before the first one and after the last.
std::optional<int64_t> IterationOf(const RuleInput& input, const LiveBlock& block) {
  const int64_t number = input.iterations.NumberAt(block.alloc_ns);
  if (number < input.iterations.first() || number >= input.iterations.count())
    return std::nullopt;
  return number;
}

// The activations of a line that outlive their iteration. Averages of weights and caches are none.
struct Survivors {
  BlockChanges changes;  // they are gone when it ends
  std::set<int64_t> iterations;
  bool add_up = false;  // some are there after the next two
};

std::map<FrameId, Survivors> FindSurvivors(const RuleInput& input) {
  std::map<FrameId, Survivors> lines;
  if (input.iterations.empty() || input.blocks.backward_ns.empty())
    return lines;
  const int64_t last = input.iterations.count() - 1;
  for (size_t i = 0; i < input.blocks.all.size(); ++i) {
    const LiveBlock& block = input.blocks.all[i];
    const SiteRow& site = SiteOf(input, block);
    const std::optional<int64_t> number = IterationOf(input, block);
    if (!number || site.category != Category::kActivation ||
        block.end_ns <= input.iterations.EndOf(*number))
      continue;
    Survivors& line = lines[input.lines.Of(site.place)];
    line.changes.absences.push_back({i, input.iterations.EndOf(*number), block.end_ns});
    line.iterations.insert(*number);
    line.add_up |= *number + 2 <= last && block.end_ns > input.iterations.EndOf(*number + 2);
  }
  // What few iterations leave is left on purpose.
  constexpr size_t kFewest = 3;
  for (auto line = lines.begin(); line != lines.end();) {
    const bool counts = line->first.value != 0 && line->second.iterations.size() >= kFewest;
    line = counts ? std::next(line) : lines.erase(line);
  }
  return lines;
}

// `{}` of the change is the line.
std::vector<Proposal> ProposeForSurvivors(const RuleInput& input,
                                          bool add_up,
                                          fmt::format_string<std::string&> change,
                                          const char* why,
                                          const char* condition) {
  std::vector<Proposal> proposals;
  for (auto& [line, found] : FindSurvivors(input)) {
    if (found.add_up != add_up)
      continue;
    std::string place = FormatFrame(input.recording, line);
    proposals.push_back({.change = fmt::format(change, place),
                         .why = why,
                         .condition = condition,
                         .place = place,
                         .changes = std::move(found.changes)});
  }
  return proposals;
}

std::vector<Proposal> ProposeReleases(const RuleInput& input) {
  return ProposeForSurvivors(input, false, "`del` what {} makes when its iteration ends",
                             "it still lives in the next iteration",
                             "the next iteration does not read it");
}

std::vector<Proposal> ProposeNotKeeping(const RuleInput& input) {
  return ProposeForSurvivors(input, true, "keep .item() or .cpu() of what {} makes",
                             "iterations keep the tensor, and it adds up",
                             "nothing needs it on the device later");
}

// Confidences.
constexpr char kExact[] = "exact";
constexpr char kAbout[] = "about";
constexpr char kAtMost[] = "at most";

constexpr std::array kRules = {
    Rule{"checkpoint", kAbout, ProposeCheckpoints},
    Rule{"no_grad", kAbout, ProposeNoGrad},
    Rule{"attention", kAbout, ProposeFusedAttention},
    Rule{"fused", kExact, ProposeFusedSteps},
    Rule{"buckets", kAbout, ProposeBucketViews},
    Rule{"release", kExact, ProposeReleases},
    Rule{"keep", kExact, ProposeNotKeeping},
    Rule{"zero_grad", kAbout, ProposeDroppingGradients},
    Rule{"state_dict", kExact, ProposeDroppingStateDicts},
    Rule{"communicators", kAtMost, ProposeSharingGroups},
    Rule{"local_memory", kAtMost, ProposeOtherKernels},
    Rule{"allocator", kAbout, ProposeAllocatorSettings},
};

}  // namespace

const SiteRow& SiteOf(const RuleInput& input, const LiveBlock& block) {
  return RowOf(input.recording.tables().sites, block.site);
}

std::string PlaceText(const RuleInput& input, const std::map<FrameId, uint64_t>& lines) {
  const FrameId line = Largest(lines);
  return line.value == 0 ? "" : FormatFrame(input.recording, line);
}

OtherPeak DevicePeakWith(const RuleInput& input, const std::vector<tables::PeakRow>& peaks) {
  const tables::Tables& tables = input.recording.tables();
  const tables::DeviceId device = RowOf(tables.accounts, input.blocks.account).device;
  const auto most = [&](const std::vector<tables::PeakRow>& rows) {
    uint64_t bytes = 0;
    for (const tables::PeakRow& row : rows)
      bytes = std::max(bytes, row.device == device ? row.bytes : 0);
    return bytes;
  };
  return {"device", most(tables.peaks), most(peaks)};
}

std::span<const Rule> AdviceRules() {
  return kRules;
}

}  // namespace vramscope::query
