// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "query/advice/blocks.h"
#include "query/dimensions/frames.h"
#include "query/dimensions/iteration_times.h"
#include "tables/recording.h"

namespace vramscope::query {

struct RuleInput {
  const tables::Recording& recording;
  const LiveBlocks& blocks;
  const ProcessIterations& iterations;
  UserFrames& lines;
};

// A peak of more than the process's allocations.
struct OtherPeak {
  const char* lowers;  // as Saving::lowers
  uint64_t recorded_bytes = 0;
  uint64_t bytes = 0;  // with the change
};

// A change that may lower the peak. Its blocks are the recording's, so a rule that finds none does
// not apply.
struct Proposal {
  std::string change;
  std::string why;
  std::string condition;  // what the recording cannot tell; may be empty
  std::string place;
  BlockChanges changes;            // of the allocated peak
  std::optional<OtherPeak> other;  // instead of them
};

struct Rule {
  const char* name;
  const char* confidence;  // as Saving::confidence
  std::vector<Proposal> (*propose)(const RuleInput& input);
};

// All of them. tests/e2e/report/test_advice.py has for each a program that follows it, and one that
// gets no such advice.
std::span<const Rule> AdviceRules();

// Rules of other files.
std::vector<Proposal> ProposeAllocatorSettings(const RuleInput& input);
std::vector<Proposal> ProposeDroppingGradients(const RuleInput& input);
std::vector<Proposal> ProposeDroppingStateDicts(const RuleInput& input);
std::vector<Proposal> ProposeSharingGroups(const RuleInput& input);
std::vector<Proposal> ProposeOtherKernels(const RuleInput& input);

// For all rules.
const tables::SiteRow& SiteOf(const RuleInput& input, const LiveBlock& block);
// The line with most of these bytes; "" without one.
std::string PlaceText(const RuleInput& input, const std::map<tables::FrameId, uint64_t>& lines);
// Of the account's device, as recorded and in `peaks`.
OtherPeak DevicePeakWith(const RuleInput& input, const std::vector<tables::PeakRow>& peaks);

}  // namespace vramscope::query
