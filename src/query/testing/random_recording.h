// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "format/memory_words.h"
#include "tables/memory_recording.h"

namespace vramscope::query {

// A recording made by hand: fill `tables` and `rows`, then Make().
struct RecordingBuilder {
  tables::Tables tables;
  std::vector<tables::AllocationRow> rows;

  tables::StringId Text(const std::string& text) { return tables.strings.Add(text); }

  template <class Row>
  static uint32_t Append(std::vector<Row>& table, const Row& row) {
    table.push_back(row);
    return static_cast<uint32_t>(table.size() - 1);
  }
  tables::DeviceId Device(tables::DeviceKind kind, int32_t index) {
    tables::DeviceRow row;
    row.kind = kind;
    row.index = index;
    return tables::DeviceId{Append(tables.devices, row)};
  }
  tables::ProcessId Process(uint32_t pid, int64_t exit_ns) {
    tables::ProcessRow row;
    row.pid = pid;
    row.rank = -1;
    row.exit_ns = exit_ns;
    row.end_ns = exit_ns;
    return tables::ProcessId{Append(tables.processes, row)};
  }
  tables::AccountId Account(tables::ProcessId process, tables::DeviceId device) {
    tables::AccountRow row;
    row.process = process;
    row.device = device;
    row.end_ns = INT64_MAX;
    return tables::AccountId{Append(tables.accounts, row)};
  }
  tables::SiteRow SiteOf(tables::AccountId account,
                         format::Part part = format::Part::kAllocated,
                         format::Category category = format::Category::kUnknown) const {
    tables::SiteRow row;
    row.account = account;
    row.part = part;
    row.category = category;
    return row;
  }
  tables::SiteId Site(const tables::SiteRow& row) {
    return tables::SiteId{Append(tables.sites, row)};
  }
  tables::SegmentId Segment(tables::SiteId site, format::Part part_in_use) {
    tables::SegmentRow row;
    row.site = site;
    row.part_in_use = part_in_use;
    return tables::SegmentId{Append(tables.segments, row)};
  }
  tables::CounterId Counter(tables::SiteId site, tables::SegmentId segment = {}) {
    tables::CounterRow row;
    row.site = site;
    row.segment = segment;
    return tables::CounterId{Append(tables.counters, row)};
  }
  void Step(tables::CounterId counter, int64_t time_ns, int64_t bytes) {
    tables.steps.push_back({counter, time_ns, bytes});
  }
  void Row(tables::SiteId site,
           int64_t begin_ns,
           int64_t end_ns,
           uint64_t bytes,
           tables::SegmentId segment = {},
           uint64_t rounding = 0) {
    tables::AllocationRow row;
    row.begin_ns = begin_ns;
    row.alloc_ns = begin_ns;
    row.end_ns = end_ns;
    row.bytes = bytes;
    row.rounding_bytes = rounding;
    row.site = site;
    row.segment = segment;
    rows.push_back(row);
    tables.sites[site.value].allocated_bytes += bytes;
    ++tables.sites[site.value].allocated_count;
  }

  std::unique_ptr<tables::MemoryRecording> Make(size_t rows_per_frame = 4096) {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const auto& a, const auto& b) { return a.end_ns < b.end_ns; });
    std::stable_sort(tables.steps.begin(), tables.steps.end(),
                     [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
    auto recording = std::make_unique<tables::MemoryRecording>(rows_per_frame);
    for (const tables::AllocationRow& row : rows)
      (void)recording->Add(row).ok();
    recording->Finish(tables);
    return recording;
  }
};

// Two processes on two GPUs and the host, with segments, pools that readings tell, counters that go
// up and down, rounding, memory asleep, and a process that is checkpointed for a while. Times are 1
// to `last_ns`.
inline RecordingBuilder RandomRecording(uint32_t seed, size_t count, int64_t last_ns) {
  using format::Category;
  using format::Part;
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t limit) { return random() % limit; };
  RecordingBuilder builder;
  tables::Tables& tables = builder.tables;
  tables.session.begin_ns = 1;
  tables.session.end_ns = last_ns;
  const auto allocator = builder.Text("PyTorch");
  std::vector<tables::DeviceId> devices = {builder.Device(tables::DeviceKind::kGpu, 0),
                                           builder.Device(tables::DeviceKind::kGpu, 1),
                                           builder.Device(tables::DeviceKind::kHost, -2)};
  std::vector<tables::AccountId> accounts;
  for (uint32_t pid = 100; pid < 102; ++pid) {
    const auto process = builder.Process(pid, last_ns * 9 / 10);
    for (const tables::DeviceId device : devices)
      accounts.push_back(builder.Account(process, device));
    for (int64_t k = 0; k < 10; ++k)
      tables.iterations.push_back({process, k, last_ns * k / 12, last_ns * (k + 1) / 12});
  }
  accounts.push_back(builder.Account({}, devices[0]));  // of no recorded process
  struct Pool {
    tables::SegmentId segment;
    tables::SiteId backing;
    std::vector<tables::SiteId> sites;
    std::vector<tables::SiteId> asleep;  // the same without device memory
  };
  std::vector<Pool> pools;
  std::vector<tables::SiteId> loose;
  for (const tables::AccountId account : accounts) {
    tables::SiteRow site = builder.SiteOf(account, Part::kContext, Category::kDriver);
    site.estimated = tables::Estimated::kByFreeMemory;
    const auto counter = builder.Counter(builder.Site(site));
    for (size_t i = 0; i < 20; ++i) {
      const auto bytes = static_cast<int64_t>(below(2000)) - 800;
      builder.Step(counter, 1 + static_cast<int64_t>(below(static_cast<uint64_t>(last_ns))), bytes);
    }
    for (size_t i = 0; i < 3; ++i)
      loose.push_back(
          builder.Site(builder.SiteOf(account, Part::kAllocated, static_cast<Category>(below(5)))));
    for (size_t i = 0; i < 4; ++i) {
      Pool pool;
      pool.segment =
          builder.Segment(builder.Site(builder.SiteOf(account, Part::kCached, Category::kCached)),
                          Part::kFragmentation);
      site = builder.SiteOf(account);
      site.backing = 1;
      pool.backing = builder.Site(site);
      for (size_t j = 0; j < 5; ++j) {
        site = builder.SiteOf(account, Part::kAllocated, static_cast<Category>(below(7)));
        site.allocator = allocator;
        site.phase = static_cast<format::Phase>(1 + below(5));
        site.thread = tables::ThreadId{static_cast<uint32_t>(below(3))};
        pool.sites.push_back(builder.Site(site));
        site.unbacked = 1;
        pool.asleep.push_back(builder.Site(site));
      }
      if (i == 3) {  // a pool whose size readings tell
        const auto held = builder.Counter(pool.sites[0], pool.segment);
        builder.Step(held, 1, 100'000);
        builder.Step(held, last_ns / 2, -30'000);
      }
      pools.push_back(pool);
    }
  }
  tables.threads.resize(3);
  for (size_t i = 0; i < count; ++i) {
    const auto begin_ns = 1 + static_cast<int64_t>(below(static_cast<uint64_t>(last_ns)));
    const uint64_t kind = below(20);
    const int64_t longest = kind == 0 ? last_ns : kind < 5 ? last_ns / 50 : last_ns / 2000 + 2;
    int64_t end_ns = begin_ns + 1 + static_cast<int64_t>(below(static_cast<uint64_t>(longest)));
    if (below(50) == 0)
      end_ns = tables::kNever;
    const uint64_t bytes = 1 + below(5000);
    if (kind == 19) {
      builder.Row(loose[below(loose.size())], begin_ns, end_ns, bytes, {}, below(bytes + 1));
      continue;
    }
    const Pool& pool = pools[below(pools.size())];
    const std::vector<tables::SiteId>& sites = below(6) == 0 ? pool.asleep : pool.sites;
    if (kind == 18)
      builder.Row(pool.backing, begin_ns, end_ns, bytes * 20, pool.segment, below(2) * bytes);
    else
      builder.Row(sites[below(sites.size())], begin_ns, end_ns, bytes, pool.segment,
                  below(3) == 0 ? below(bytes + 1) : 0);
  }
  tables.checkpointed.push_back({accounts[0], last_ns / 3, last_ns / 2});
  tables.checkpointed.push_back({accounts[1], last_ns / 4, tables::kNever});
  return builder;
}

}  // namespace vramscope::query
