// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "query/advice/rules.h"
#include "query/allocator/whatif.h"
#include "tables/row_of.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

// Of the recording. The replays of half a million took 1.7 s of one core.
constexpr uint64_t kMostAllocations = 500'000;

// Memory that is mapped or exported by others, who need segments of cudaMalloc: engines that sleep,
// and processes that share it.
bool NeedsPlainSegments(const RuleInput& input) {
  const tables::Tables& tables = input.recording.tables();
  const auto is_pools = [&](const tables::FrameRow& frame) {
    const std::string_view image = input.recording.string(frame.image);
    return image.find("torch_memory_saver") != std::string_view::npos ||
           image.find("cumem_allocator") != std::string_view::npos;
  };
  return std::ranges::any_of(tables.frames, is_pools) ||
         std::ranges::any_of(tables.sites,
                             [](const tables::SiteRow& site) { return site.unbacked != 0; }) ||
         std::ranges::any_of(tables.shared, [&](const tables::SharedRow& row) {
           return row.account == input.blocks.account;
         });
}

// Host memory in place of the device's: how much of it there is depends on the segments.
bool HasOverflowed(const tables::Tables& tables) {
  return std::ranges::any_of(
      tables.sites, [](const tables::SiteRow& site) { return site.stands_for.value != 0; });
}

}  // namespace

// ---- allocator: other settings of PyTorch's

std::vector<Proposal> ProposeAllocatorSettings(const RuleInput& input) {
  const tables::Tables& tables = input.recording.tables();
  if (tables.session.allocation_count > kMostAllocations || HasOverflowed(tables))
    return {};
  WhatIfOptions options;
  options.only = input.blocks.account;
  const util::Result<WhatIf> what = MakeWhatIf(input.recording, options);
  if (!what.ok() || what->gpus.size() != 1)
    return {};
  const WhatIfGpu& gpu = what->gpus.front();
  // Which stream a segment is of is a guess.
  if (!gpu.IsReproduced() || gpu.inferred_streams > 1 || gpu.settings.front().fails_ns)
    return {};
  const bool plain = NeedsPlainSegments(input);
  const WhatIfRow& recorded = gpu.settings.front();
  const WhatIfRow* best = &recorded;
  for (const WhatIfRow& row : gpu.settings) {
    const bool may_be = !row.fails_ns && !(plain && row.settings.starts_with("expandable"));
    if (may_be && row.reserved_peak_bytes < best->reserved_peak_bytes)
      best = &row;
  }
  if (best == &recorded)
    return {};
  Proposal proposal;
  proposal.change = fmt::format("set PYTORCH_CUDA_ALLOC_CONF={}", best->settings);
  if (!gpu.recorded_settings.empty())
    proposal.change += fmt::format(" in place of {}", gpu.recorded_settings);
  proposal.why = fmt::format(
      "{} of what PyTorch reserves is free at its peak; a model of its allocator does what was "
      "recorded, and reserves less with this setting",
      util::FormatBytes(recorded.UnusedBytes()));
  proposal.other = OtherPeak{"reserved", recorded.reserved_peak_bytes, best->reserved_peak_bytes};
  return {std::move(proposal)};
}

}  // namespace vramscope::query
