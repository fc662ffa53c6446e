// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "query/report.h"
#include "query/texts.h"
#include "util/status.h"

// What is live at an instant by stack, for the formats that are made of stacks.
namespace vramscope::output {

struct LiveStack {
  tables::DeviceId device;
  tables::ProcessId process;  // 0: of no recorded process
  tables::StackId stack;      // 0: none
  // What stands below the stack, innermost, in brackets: who asked and what for where there is no
  // stack, and that it is the driver's where the stack is a call's that brought it.
  std::string below;
  std::string category;
  std::string module;
  uint64_t bytes = 0;
  uint64_t count = 0;
};

struct LiveStacks {
  std::vector<LiveStack> stacks;             // by device, process, stack
  std::vector<query::DeviceReport> devices;  // `ledger_bytes` of each is the sum of its stacks
};

// The leaves of the ledger, `in transit` too: by device they add up to what `report --json` says.
util::Result<LiveStacks> ReadLiveStacks(const tables::Recording& recording,
                                        const query::Instant& at);

// Frames of a stack, innermost first. Of one that is deeper the outermost are left out, so that
// what a recording makes of a stack is bounded.
inline constexpr size_t kMaxStackFrames = 512;

// Python's, else native; of a backward's memory that has none the operator's whose gradient it
// computes.
tables::StackId StackOf(const tables::SiteRow& site);
// What stands below the stack of a site.
std::string BelowStack(const query::DimensionTexts& texts,
                       const tables::SiteRow& site,
                       const tables::AllocationRow* row);

// "[PyTorch]": a line of its own among frames, of any text.
std::string InBrackets(std::string_view text);

}  // namespace vramscope::output
