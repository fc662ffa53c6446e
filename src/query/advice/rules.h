// SPDX-License-Identifier: Apache-2.0
#pragma once

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

// A change that may lower the peak. Its blocks are the recording's, so a rule that finds none does
// not apply.
struct Proposal {
  std::string change;
  std::string why;
  std::string condition;  // what the recording cannot tell; may be empty
  std::string place;
  BlockChanges changes;
};

struct Rule {
  const char* name;
  std::vector<Proposal> (*propose)(const RuleInput& input);
};

// All of them. tests/e2e/report/test_advice.py has for each a program that follows it, and one that
// gets no such advice.
std::span<const Rule> AdviceRules();

}  // namespace vramscope::query
