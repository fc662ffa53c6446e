// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "query/core/instant.h"
#include "query/core/ledger_state.h"
#include "query/dimensions/cells.h"
#include "tables/recording.h"
#include "util/status.h"

// What is live at an instant: the ledger of recording.h, summed by site. Sites without device
// memory below them (SiteRow::unbacked) have sums, too, which do not count for a device.
namespace vramscope::query {

// What a site has at an instant.
struct LiveSum {
  uint64_t bytes = 0;  // less rounding
  uint64_t rounding_bytes = 0;
  uint64_t count = 0;
};

// Rows of one site whose dimensions that are not of sites are the same, and one of them.
struct LiveGroup {
  tables::AllocationRow row;
  LiveSum sum;
};

struct LiveSet {
  // By SiteId; empty where there are groups. What segments are made of is in `segments`, its
  // rounding here.
  std::vector<LiveSum> sites;
  std::vector<LiveGroup> groups;
  std::vector<SegmentState> segments;  // by SegmentId
  std::vector<int64_t> counters;       // by CounterId
};

// Which rows of a site belong together; equal keys do. Called on several threads.
using RowKey = std::function<uint64_t(const tables::AllocationRow& row)>;

// By group with `row_key`, by site without.
util::Result<LiveSet> ReadLiveSet(const tables::Recording& recording,
                                  const Instants& at,
                                  const RowKey& row_key = {});

// The same by site, with the accounts that are checkpointed then, as if they were not.
util::Result<LiveSet> ReadLiveSetWithCheckpointed(const tables::Recording& recording,
                                                  const Instants& at);

// One disjoint piece of memory at an instant.
struct Leaf {
  tables::DeviceId device;
  tables::ProcessId process;                   // 0: of no recorded process
  tables::SiteRow site;                        // with the part and category of these very bytes
  const tables::AllocationRow* row = nullptr;  // of groups one of their rows, of counters its bytes
  uint64_t bytes = 0;
  uint64_t count = 0;  // 0 for slack
};

// Every leaf but `in transit`. They add up to what the ledger said then.
void ForEachLeaf(const tables::Recording& recording,
                 const LiveSet& live,
                 const std::function<void(const Leaf&)>& sink);
// Every leaf that no device memory is mapped below.
void ForEachUnbackedLeaf(const tables::Recording& recording,
                         const LiveSet& live,
                         const std::function<void(const Leaf&)>& sink);

// Of each device, by DeviceId.
util::Result<std::vector<uint64_t>> DeviceTotals(const tables::Recording& recording,
                                                 const Instants& at);

}  // namespace vramscope::query
