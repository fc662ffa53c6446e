// SPDX-License-Identifier: Apache-2.0
// Random driver programs against a model that recomputes everything from scratch after each event.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "ledger/report_text.h"

namespace vramscope::query {
namespace {

constexpr uint64_t kPage = 2 * kMiB;

uint64_t RoundUp(uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

struct Naive {
  struct Range {
    uint64_t size = 0;
    bool cut = false;                     // blocks were cut out of it at some time
    std::map<uint64_t, uint64_t> blocks;  // address -> size
  };
  std::map<uint64_t, Range> large;     // cuMemAlloc above 1 MiB
  std::map<uint64_t, uint64_t> small;  // cuMemAlloc up to 1 MiB
  std::map<uint64_t, uint64_t> async;  // out of one pool
  uint64_t pool_reserved = 0;
  struct Handle {
    uint64_t size = 0;
    bool released = false;
    uint64_t mapped_at = 0;
  };
  std::map<uint64_t, Handle> handles;

  std::map<std::string, uint64_t> Rows() const {
    std::map<std::string, uint64_t> rows;
    for (const auto& [address, range] : large) {
      uint64_t live = 0;
      for (const auto& [block, size] : range.blocks)
        live += size;
      rows["PyTorch / allocated"] += live;
      if (!range.cut)
        rows["application / allocated"] += range.size;
      else
        rows[live == 0 ? "PyTorch / cached" : "PyTorch / fragmentation"] += range.size - live;
      rows[range.cut ? "PyTorch / rounding" : "application / rounding"] +=
          RoundUp(range.size) - range.size;
    }
    std::set<uint64_t> pages;
    uint64_t small_bytes = 0;
    for (const auto& [address, size] : small) {
      rows["application / allocated"] += size;
      small_bytes += size;
      for (uint64_t page = address / kPage; page <= (address + size - 1) / kPage; ++page)
        pages.insert(page);
    }
    rows["rounding"] += pages.size() * kPage - small_bytes;
    uint64_t async_bytes = 0;
    for (const auto& [address, size] : async)
      async_bytes += size;
    rows["application / allocated"] += async_bytes;
    rows["application / cached"] += std::max(pool_reserved, async_bytes) - async_bytes;
    for (const auto& [number, handle] : handles)
      rows["application / allocated"] += handle.size;
    std::erase_if(rows, [](const auto& row) { return row.second == 0; });
    return rows;
  }
  static uint64_t Total(const std::map<std::string, uint64_t>& rows) {
    uint64_t total = 0;
    for (const auto& [name, bytes] : rows)
      total += bytes;
    return total;
  }
  static uint64_t Used(const std::map<std::string, uint64_t>& rows) {
    uint64_t used = 0;
    for (const auto& [name, bytes] : rows)
      used += name.ends_with(" / allocated") ? bytes : 0;
    return used;
  }
};

class RandomProgram {
 public:
  RandomProgram(uint32_t seed, TraceBuilder& trace) : random_(seed), trace_(trace) {
    native_ = trace_.Native({"/home/me/solver"});
    trace_.StackIs({}, native_);
  }

  // One random step; true if it made an event.
  bool Step() {
    switch (Below(12)) {
      case 0: {
        const uint64_t address = NewAddress(64 * kMiB);
        const uint64_t size = kPage + Below(8 * kMiB);
        trace_.DriverAlloc(address, size);
        naive.large[address].size = size;
        return true;
      }
      case 1: {  // only what holds no block, as a right program does
        for (auto& [address, range] : naive.large) {
          if (!range.blocks.empty() || Below(3) != 0)
            continue;
          trace_.DriverFree(address);
          naive.large.erase(address);
          return true;
        }
        return false;
      }
      case 2: {
        const uint64_t size = 1 + Below(300'000);
        const uint64_t address = small_top_ += 300'032;
        trace_.DriverAlloc(address, size);
        naive.small[address] = size;
        return true;
      }
      case 3: {
        const auto chosen = Pick(naive.small);
        if (chosen == naive.small.end())
          return false;
        trace_.DriverFree(chosen->first);
        naive.small.erase(chosen);
        return true;
      }
      case 4:
      case 5:
      case 6: {  // a block behind the last one of a random segment
        const auto chosen = Pick(naive.large);
        if (chosen == naive.large.end())
          return false;
        uint64_t at = chosen->first;
        if (!chosen->second.blocks.empty())
          at = chosen->second.blocks.rbegin()->first + chosen->second.blocks.rbegin()->second;
        const uint64_t room = chosen->first + chosen->second.size - at;
        if (room < 512)
          return false;
        const uint64_t size = 1 + Below(room);
        trace_.Alloc(at, size);
        chosen->second.blocks[at] = size;
        chosen->second.cut = true;
        return true;
      }
      case 7:
      case 8: {
        const auto chosen = Pick(naive.large);
        if (chosen == naive.large.end() || chosen->second.blocks.empty())
          return false;
        const auto block = Pick(chosen->second.blocks);
        trace_.Free(block->first, block->second);
        chosen->second.blocks.erase(block);
        return true;
      }
      case 9: {
        const uint64_t address = NewAddress(8 * kMiB);
        const uint64_t size = 1 + Below(4 * kMiB);
        trace_.DriverAlloc(address, size, format::MemoryKind::kAsync).As<trace::Alloc>().pool =
            0xb001;
        naive.async[address] = size;
        return true;
      }
      case 10: {
        if (Below(2) == 0) {
          const auto chosen = Pick(naive.async);
          if (chosen == naive.async.end())
            return false;
          trace_.DriverFree(chosen->first, format::MemoryKind::kAsync);
          naive.async.erase(chosen);
          return true;
        }
        if (naive.async.empty() && naive.pool_reserved == 0)
          return false;  // the pool belongs to its first user
        naive.pool_reserved = Below(16) * kPage;
        trace_.Add(trace::PoolReading{
            .pool = 0xb001, .reserved = naive.pool_reserved, .used = naive.pool_reserved / 2});
        return true;
      }
      case 11:
        return HandleStep();
    }
    return false;
  }

  Naive naive;

 private:
  bool HandleStep() {
    const auto chosen = Pick(naive.handles);
    if (chosen == naive.handles.end() || Below(3) == 0) {
      const uint64_t number = ++handle_;
      trace_.Add(trace::HandleCreate{.handle = number, .size = 4 * kMiB, .native = native_});
      naive.handles[number].size = 4 * kMiB;
      return true;
    }
    auto& [number, handle] = *chosen;
    if (handle.mapped_at == 0 && !handle.released && Below(2) == 0) {
      handle.mapped_at = NewAddress(64 * kMiB);
      trace_.Add(trace::Map{.address = handle.mapped_at, .size = handle.size, .handle = number});
      return true;
    }
    if (handle.mapped_at != 0 && Below(2) == 0) {
      trace_.Add(trace::Unmap{.address = handle.mapped_at, .size = handle.size});
      handle.mapped_at = 0;
    } else if (!handle.released) {
      trace_.Add(trace::HandleRelease{.handle = number});
      handle.released = true;
    } else {
      return false;
    }
    if (handle.released && handle.mapped_at == 0)
      naive.handles.erase(chosen);
    return true;
  }

  uint64_t Below(uint64_t limit) { return random_() % limit; }
  // Far apart, and sometimes not on a page border.
  uint64_t NewAddress(uint64_t span) {
    top_ += span;
    return top_ + (Below(2) == 0 ? 0 : 512);
  }
  template <class Map>
  typename Map::iterator Pick(Map& map) {
    if (map.empty())
      return map.end();
    auto at = map.begin();
    std::advance(at, static_cast<ptrdiff_t>(Below(map.size())));
    return at;
  }

  std::mt19937_64 random_;
  TraceBuilder& trace_;
  tables::StackId native_;
  uint64_t top_ = uint64_t{0x7f} << 40;
  uint64_t small_top_ = uint64_t{0x7e} << 40;
  uint64_t handle_ = 0;
};

class PropertyTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(PropertyTest, RowsAndPeakMatchTheNaiveModel) {
  TraceBuilder trace;
  trace.AddGpu();
  trace.AddProcess(1);
  RandomProgram program(GetParam(), trace);
  std::map<std::string, uint64_t> peak;
  std::map<std::string, uint64_t> middle;
  std::pair<uint64_t, uint64_t> height;
  uint64_t steps = 0;
  while (steps < 400) {
    if (!program.Step())
      continue;
    ++steps;
    const auto rows = program.naive.Rows();
    const std::pair<uint64_t, uint64_t> now{Naive::Total(rows), Naive::Used(rows)};
    if (now > height) {
      height = now;
      peak = rows;
    }
    if (steps == 200) {
      middle = rows;
      trace.Mark("middle");
    }
  }
  const auto end = program.naive.Rows();
  auto analysis = Analyse(trace);
  const auto nonzero = [](std::map<std::string, uint64_t> rows) {
    std::erase_if(rows, [](const auto& row) { return row.second == 0; });
    return rows;
  };
  const std::vector<std::pair<std::string, std::map<std::string, uint64_t>>> expected{
      {"peak", peak}, {"mark:middle", middle}, {"end", end}};
  for (const auto& [when, rows] : expected) {
    const auto report = MakeReport(*analysis, At(when));
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(nonzero(RowBytes(*report)), rows) << when;
    EXPECT_EQ(report->devices[0].ledger_bytes, Naive::Total(rows)) << when;
    EXPECT_EQ(report->processes[0].ledger_bytes, Naive::Total(rows)) << when;
    EXPECT_EQ(BrokenInvariants(*report), "");
    EXPECT_TRUE(report->losses.empty());
    // Any grouping of the same leaves sums to the same.
    for (const char* by : {"owner", "api", "line", "size_class", "lifetime", "category", "stream",
                           "module", "parameter", "phase", "iteration", "tag"}) {
      ReportQuery query = At(when);
      query.by = {*ParseDimension(by), Dimension::kDevice};
      const auto grouped = MakeReport(*analysis, query);
      uint64_t total = 0;
      for (const ReportRow& row : grouped->rows)
        total += row.bytes;
      EXPECT_EQ(total, Naive::Total(rows)) << when << " by " << by;
    }
  }
  // The timeline's highest bucket is the peak, and its bands are the rows.
  const auto timelines = MakeTimelines(*analysis, 100'000);
  const Timeline& timeline = timelines->front();
  std::pair<uint64_t, size_t> highest;
  for (size_t bucket = 0; bucket < timeline.time_ns.size(); ++bucket) {
    uint64_t total = 0;
    for (const auto& band : timeline.peak)
      total += band[bucket];
    highest = std::max(highest, {total, bucket});
  }
  EXPECT_EQ(highest.first, height.first);
}

// The process is checkpointed at times and restored: an allocation shows that it is back.
TEST_P(PropertyTest, WhatIsAwayIsInNoFigure) {
  using Rows = std::map<std::string, uint64_t>;
  TraceBuilder trace;
  trace.AddGpu();
  trace.AddProcess(1);
  RandomProgram program(GetParam(), trace);
  std::mt19937_64 random(GetParam());
  bool away = false;
  Rows peak;
  Rows now;
  std::pair<uint64_t, uint64_t> height;
  const auto look = [&] {
    const std::pair<uint64_t, uint64_t> high{Naive::Total(now), Naive::Used(now)};
    if (!away && high > height) {
      height = high;
      peak = now;
    }
  };
  const auto move = [&](format::CheckpointKind kind) {
    trace.Add(trace::Checkpoint{.kind = kind});
    away = kind == format::CheckpointKind::kCheckpoint;
    look();
  };
  std::vector<std::pair<std::string, Rows>> expected;
  for (uint64_t steps = 0; steps < 400;) {
    if (random() % 16 == 0)
      move(away ? format::CheckpointKind::kRestore : format::CheckpointKind::kCheckpoint);
    if (!program.Step())
      continue;
    ++steps;
    const trace::Event& last = trace.events().back();
    if (away && (last.Is<trace::Alloc>() || last.Is<trace::HandleCreate>() ||
                 last.Is<trace::PoolReading>())) {
      away = false;
      look();
    }
    now = program.naive.Rows();
    look();
    if (steps % 100 == 50) {
      trace.Mark(std::to_string(steps));
      expected.emplace_back("mark:" + std::to_string(steps), away ? Rows() : now);
    }
  }
  expected.emplace_back("end", away ? Rows() : now);
  expected.emplace_back("peak", peak);
  const auto analysis = Analyse(trace);
  for (const auto& [when, rows] : expected) {
    const auto report = MakeReport(*analysis, At(when));
    ASSERT_TRUE(report.ok()) << report.status().message();
    Rows found = RowBytes(*report);
    std::erase_if(found, [](const auto& row) { return row.second == 0; });
    EXPECT_EQ(found, rows) << when;
    EXPECT_EQ(report->devices[0].ledger_bytes, Naive::Total(rows)) << when;
    EXPECT_EQ(BrokenInvariants(*report), "");
    EXPECT_TRUE(report->losses.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, PropertyTest, ::testing::Range(uint32_t{0}, uint32_t{60}));

}  // namespace
}  // namespace vramscope::query
