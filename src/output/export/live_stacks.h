// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "query/dimensions/dimensions.h"
#include "query/dimensions/report.h"
#include "util/status.h"

// What is live at an instant by stack, for the formats that are made of stacks.
namespace vramscope::output {

// Ids of tables; texts are made where they are written, since they can be long and many.
struct LiveStack {
  tables::DeviceId device;
  tables::ProcessId process;  // 0: of no recorded process
  tables::StackId stack;      // 0: none
  // Of bytes without a stack: the requester, and the part.
  tables::StringId owner;
  format::Part part{};
  bool is_backward = false;  // the stack is the operator's whose gradient it computes
  format::Category category{};
  tables::StringId module;
  uint64_t bytes = 0;
  uint64_t count = 0;

  auto Key() const {
    return std::tie(device, process, stack, is_backward, owner, part, category, module);
  }
};

struct LiveStacks {
  std::vector<LiveStack> stacks;             // by device, process, stack
  std::vector<query::DeviceReport> devices;  // `ledger_bytes` of each is the sum of its stacks
};

// The leaves of the ledger, `in transit` too: by device they add up to what `report --json` says.
util::Result<LiveStacks> ReadLiveStacks(const tables::Recording& recording,
                                        const query::Instant& at);

// Python's, else native; of a backward's memory that has none the operator's whose gradient it
// computes.
tables::StackId StackOf(const tables::SiteRow& site);
// The stack of a site on a device, of no bytes yet.
LiveStack LiveStackOf(tables::DeviceId device,
                      tables::ProcessId process,
                      const tables::SiteRow& site);
// The innermost names, in brackets, below the frames: the requester and the part if there is no
// stack, the driver's part if the stack is that of the call which made the driver allocate.
std::vector<std::string> BelowStack(const tables::Recording& recording, const LiveStack& live);

// "[PyTorch]": a line of its own among frames, of any text.
std::string InBrackets(std::string_view text);

}  // namespace vramscope::output
