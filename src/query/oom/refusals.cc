// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <utility>

#include "query/core/parallel.h"
#include "query/dimensions/cells.h"
#include "query/oom/out_of_memory.h"

namespace vramscope::query {
namespace {

using Asker = std::pair<tables::AccountId, tables::ThreadId>;

struct Given {
  int64_t time_ns;
  uint64_t bytes;
};
using GivenByAsker = std::map<Asker, std::vector<Given>>;

// Host memory in place of a device's answers requests for that device.
tables::AccountId AccountAsked(const tables::Tables& tables, const tables::SiteRow& site) {
  if (site.stands_for.value == 0 || site.account.value >= tables.accounts.size())
    return site.account;
  const tables::ProcessId process = tables.accounts[site.account.value].process;
  for (uint32_t i = 1; i < tables.accounts.size(); ++i) {
    if (tables.accounts[i].process == process && tables.accounts[i].device == site.stands_for)
      return tables::AccountId{i};
  }
  return site.account;
}

// What the driver gave from the first refusal on to those who were refused something.
util::Result<GivenByAsker> ReadGiven(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  GivenByAsker given;
  int64_t first_ns = INT64_MAX;
  for (const tables::OutOfMemoryRow& row : tables.out_of_memory) {
    given[{row.account, row.thread}];
    first_ns = std::min(first_ns, row.time_ns);
  }
  std::vector<size_t> frames;
  for (size_t i = 0; i < recording.frame_count(); ++i) {
    if (recording.zone(i).max_begin_ns > first_ns)
      frames.push_back(i);
  }
  const uint32_t wanted = tables::kAllocNs | tables::kBytes | tables::kSite;
  VRAMSCOPE_RETURN_IF_ERROR(
      ForEachFrame(recording, frames, wanted, 1, [&](size_t, const tables::AllocationFrame& frame) {
        for (size_t i = 0; i < frame.rows; ++i) {
          if (frame.alloc_ns[i] <= first_ns || frame.site[i] >= tables.sites.size())
            continue;
          const tables::SiteRow& site = tables.sites[frame.site[i]];
          if (site.api.value == 0)
            continue;
          const auto found = given.find({AccountAsked(tables, site), site.thread});
          if (found != given.end())
            found->second.push_back({frame.alloc_ns[i], frame.bytes[i]});
        }
      }));
  for (auto& [asker, list] : given) {
    std::sort(list.begin(), list.end(),
              [](const Given& a, const Given& b) { return a.time_ns < b.time_ns; });
  }
  return given;
}

const Given* NextAfter(const std::vector<Given>& list, int64_t time_ns) {
  const auto next =
      std::upper_bound(list.begin(), list.end(), time_ns,
                       [](int64_t time, const Given& given) { return time < given.time_ns; });
  return next == list.end() ? nullptr : &*next;
}

}  // namespace

util::Result<std::vector<Refusal>> FindRefusals(const tables::Recording& recording) {
  std::vector<tables::OutOfMemoryRow> rows = recording.tables().out_of_memory;
  if (rows.empty())
    return std::vector<Refusal>{};
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
  VRAMSCOPE_ASSIGN_OR_RETURN(auto given, ReadGiven(recording));
  std::vector<Refusal> refusals;
  std::map<Asker, size_t> open;  // what the thread may still be trying to get
  for (const tables::OutOfMemoryRow& row : rows) {
    const Asker asker{row.account, row.thread};
    const bool by_allocator = row.api.value == 0;
    Refusal* known = nullptr;
    if (const auto found = open.find(asker); found != open.end()) {
      Refusal& last = refusals[found->second];
      const Given* const next = NextAfter(given[asker], last.time_ns);
      const bool same_request =
          by_allocator ? last.stack == row.stack || row.requested_bytes <= last.asked_driver_bytes
                       : last.stack == row.stack && row.requested_bytes == last.asked_driver_bytes;
      if (same_request && (next == nullptr || next->time_ns > row.time_ns))
        known = &last;
    }
    if (known == nullptr) {
      open[asker] = refusals.size();
      known = &refusals.emplace_back();
      known->account = row.account;
      known->thread = row.thread;
    }
    known->time_ns = row.time_ns;
    known->requested_bytes = row.requested_bytes;
    known->stack = row.stack;
    if (row.reported_free != 0)
      known->reported_free_bytes = row.reported_free - 1;
    if (by_allocator) {
      known->by_allocator = true;
      open.erase(asker);
      continue;
    }
    known->native_stack = row.native_stack;
    known->api = row.api;
    known->asked_driver_bytes = row.requested_bytes;
    ++known->attempts;
  }
  for (Refusal& refusal : refusals) {
    const Given* const next = NextAfter(given[{refusal.account, refusal.thread}], refusal.time_ns);
    refusal.served =
        !refusal.by_allocator && next != nullptr && next->bytes >= refusal.requested_bytes;
  }
  return refusals;
}

}  // namespace vramscope::query
