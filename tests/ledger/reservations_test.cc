// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "ledger/report_text.h"
#include "query/core/peaks.h"

namespace vramscope::query {
namespace {

// Found by tests/differential: the range kept the device of what was mapped into it first.
TEST(Reservations, OneRangeOfAddressesHasMemoryOfTwoDevicesInTurn) {
  TraceBuilder trace;
  const trace::DeviceId first = trace.AddGpu(0), second = trace.AddGpu(1);
  trace.AddProcess(100);
  trace.On(first);
  trace.Add(trace::Reserve{.address = kBase, .size = 64 * kMiB});
  trace.Add(trace::HandleCreate{.handle = 1, .size = 4 * kMiB});
  trace.Add(trace::Map{.address = kBase, .size = 4 * kMiB, .handle = 1});
  trace.Add(trace::Unmap{.address = kBase, .size = 4 * kMiB});
  trace.Add(trace::HandleRelease{.handle = 1});
  trace.On(second);
  trace.Add(trace::HandleCreate{.handle = 2, .size = 8 * kMiB});
  trace.Add(trace::Map{.address = kBase, .size = 8 * kMiB, .handle = 2});
  trace.Alloc(kBase, 6 * kMiB);
  trace.Add(trace::ProcessExit{});

  const Report report = ReportOf(trace);
  EXPECT_EQ(BrokenInvariants(report), "");
  ASSERT_EQ(report.devices.size(), 2u);
  EXPECT_EQ(report.devices[0].ledger_bytes, 4 * kMiB);
  EXPECT_EQ(report.devices[1].ledger_bytes, 8 * kMiB);
}

// ---- device memory below blocks that comes and goes

struct Bytes {
  uint64_t device = 0;
  uint64_t parameter = 0;
  uint64_t unbacked = 0;
  uint64_t unbacked_parameter = 0;
  friend bool operator==(const Bytes&, const Bytes&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Bytes& bytes) {
    return out << "device " << bytes.device << ", parameter " << bytes.parameter << ", unbacked "
               << bytes.unbacked << ", of it parameter " << bytes.unbacked_parameter;
  }
};

Bytes BytesAt(const tables::Recording& recording, const std::string& when) {
  ReportQuery query = At(when);
  query.by = {Dimension::kCategory};
  const auto report = MakeReport(recording, query);
  if (!report.ok() || report->devices.empty())
    return {};
  const auto of = [](const std::vector<ReportRow>& rows) {
    uint64_t bytes = 0;
    for (const ReportRow& row : rows)
      bytes += row.path[0] == "parameter" ? row.bytes : 0;
    return bytes;
  };
  EXPECT_EQ(BrokenInvariants(*report), "") << when;
  return {report->devices[0].ledger_bytes, of(report->rows), report->devices[0].unbacked_bytes,
          of(report->unbacked)};
}

void Wake(TraceBuilder& trace, uint64_t address, uint64_t size, uint64_t handle) {
  trace.Add(trace::HandleCreate{.handle = handle, .size = size});
  trace.Add(trace::Map{.address = address, .size = size, .handle = handle});
}

void Sleep(TraceBuilder& trace, uint64_t address, uint64_t size, uint64_t handle) {
  trace.Add(trace::Unmap{.address = address, .size = size});
  trace.Add(trace::HandleRelease{.handle = handle});
}

// torch_memory_saver's order of calls.
TEST(Reservations, WhatSleepsHasItsNamesAndNoDeviceMemory) {
  TraceBuilder trace;
  trace.AddGpu(0);
  trace.AddProcess(100);
  const uint64_t cache = kBase + 64 * kMiB;
  trace.Add(trace::Reserve{.address = kBase, .size = 32 * kMiB});
  Wake(trace, kBase, 32 * kMiB, 1);
  trace.Add(trace::Reserve{.address = cache, .size = 128 * kMiB});
  Wake(trace, cache, 128 * kMiB, 2);
  trace.Alloc(kBase, 10 * kMiB);
  trace.Alloc(kBase + 10 * kMiB, 20 * kMiB);
  trace.Alloc(cache, 128 * kMiB);
  trace.Mark("awake");
  Sleep(trace, kBase, 32 * kMiB, 1);
  Sleep(trace, cache, 128 * kMiB, 2);
  trace.Mark("asleep");
  // What a name says is true of all of a block's life.
  trace.Name(format::NameKind::kParameter, kBase, "weight", 10 * kMiB);
  Wake(trace, kBase, 32 * kMiB, 3);
  trace.Mark("half awake");
  Wake(trace, cache, 128 * kMiB, 4);
  trace.Mark("awake again");
  Sleep(trace, cache, 128 * kMiB, 4);
  Sleep(trace, kBase, 32 * kMiB, 3);
  trace.Free(kBase + 10 * kMiB);
  trace.Alloc(kBase + 12 * kMiB, 4 * kMiB);
  trace.Mark("freed and allocated asleep");
  Wake(trace, kBase, 32 * kMiB, 5);
  trace.Mark("the weights again");
  Sleep(trace, kBase, 32 * kMiB, 5);  // killed

  const auto recording = Analyse(trace);
  const auto at = [&](const char* mark) {
    return BytesAt(*recording, "mark:" + std::string(mark));
  };
  EXPECT_EQ(at("awake"), (Bytes{160 * kMiB, 10 * kMiB, 0, 0}));
  EXPECT_EQ(at("asleep"), (Bytes{0, 0, 158 * kMiB, 10 * kMiB}));
  EXPECT_EQ(at("half awake"), (Bytes{32 * kMiB, 10 * kMiB, 128 * kMiB, 0}));
  EXPECT_EQ(at("awake again"), (Bytes{160 * kMiB, 10 * kMiB, 0, 0}));
  EXPECT_EQ(at("freed and allocated asleep"), (Bytes{0, 0, 142 * kMiB, 10 * kMiB}));
  EXPECT_EQ(at("the weights again"), (Bytes{32 * kMiB, 10 * kMiB, 128 * kMiB, 0}));
  EXPECT_EQ(BytesAt(*recording, "end"), (Bytes{0, 0, 142 * kMiB, 10 * kMiB}));
  // Its rows follow each other, and it was allocated once.
  for (const tables::SiteRow& site : recording->tables().sites) {
    if (site.parameter.value != 0) {
      EXPECT_EQ(site.allocated_count, site.unbacked == 0 ? 1u : 0u);
    }
  }
  const auto peaks = FindUnbackedPeaks(*recording);
  ASSERT_TRUE(peaks.ok());
  ASSERT_EQ(peaks->size(), 1u);
  EXPECT_EQ(peaks->front().bytes, 158 * kMiB);
  // A timeline has them beside its stack.
  const auto timelines = MakeTimelines(*recording, 1000);
  ASSERT_TRUE(timelines.ok());
  const std::vector<uint64_t>& unbacked = timelines->front().unbacked;
  ASSERT_FALSE(unbacked.empty());
  EXPECT_EQ(*std::max_element(unbacked.begin(), unbacked.end()), 158 * kMiB);
}

TEST(Reservations, MemoryOfAFreedSegmentIsBelowNoBlock) {
  TraceBuilder trace;
  trace.AddGpu(0);
  trace.AddProcess(100);
  trace.DriverAlloc(kBase, 20 * kMiB);
  trace.Alloc(kBase, 8 * kMiB);
  trace.DriverFree(kBase);
  trace.Mark("freed");
  trace.Free(kBase);

  const auto report = MakeReport(*Analyse(trace), At("mark:freed"));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->devices[0].ledger_bytes, 0u);
  EXPECT_EQ(report->devices[0].unbacked_bytes, 8 * kMiB);
}

// Everything that programs do with handles, ranges and blocks, against a model that looks at every
// page anew.
class RandomRanges {
 public:
  RandomRanges(uint32_t seed, TraceBuilder& trace) : random_(seed), trace_(trace) {}

  void Step() {
    switch (Below(9)) {
      case 0:
        return Reserve();
      case 1:
        return Create();
      case 2:
      case 3:
        return Map();
      case 4:
        return Unmap();
      case 5:
        return Release();
      case 6:
      case 7:
        return Alloc();
      default:
        return Below(3) == 0 ? Unreserve() : Free();
    }
  }

  // On the device, in blocks, in blocks without memory.
  std::vector<uint64_t> Expected() const {
    std::vector<uint64_t> sums(3);
    std::map<uint64_t, bool> is_backed;  // by page
    for (const auto& [number, handle] : handles_) {
      sums[0] += handle.pages * kPage;
      uint64_t covered = 0;
      for (const Mapping& mapping : handle.mappings) {
        for (; covered < mapping.pages; ++covered)
          is_backed[mapping.address / kPage + covered] = true;
      }
    }
    for (const auto& [address, size] : blocks_) {
      for (uint64_t at = address; at < address + size;) {
        const uint64_t next = std::min(address + size, (at / kPage + 1) * kPage);
        sums[is_backed.contains(at / kPage) && !IsGone(address) ? 1 : 2] += next - at;
        at = next;
      }
    }
    return sums;
  }

 private:
  static constexpr uint64_t kPage = 2 * kMiB;
  struct Mapping {
    uint64_t address = 0;
    uint64_t pages = 0;
  };
  struct Handle {
    uint64_t pages = 0;
    bool released = false;
    std::vector<Mapping> mappings;  // the oldest first
  };
  struct Range {
    uint64_t pages = 0;
    bool cut = false;  // a block was cut out of it
  };

  uint64_t Below(uint64_t limit) { return random_() % limit; }
  template <class Map>
  auto Pick(Map& from) {
    return from.empty() ? from.end()
                        : std::next(from.begin(), static_cast<std::ptrdiff_t>(Below(from.size())));
  }
  bool IsGone(uint64_t block) const {
    const auto range = ranges_.upper_bound(block);
    return range == ranges_.begin() ||
           block >= std::prev(range)->first + std::prev(range)->second.pages * kPage;
  }
  bool IsMapped(uint64_t address) const {
    for (const auto& [number, handle] : handles_) {
      for (const Mapping& mapping : handle.mappings) {
        if (mapping.address <= address && address < mapping.address + mapping.pages * kPage)
          return true;
      }
    }
    return false;
  }

  void Reserve() {
    const uint64_t pages = 1 + Below(8);
    top_ += 64 * kPage;
    ranges_[top_] = {pages};
    trace_.Add(trace::Reserve{.address = top_, .size = pages * kPage});
  }
  void Unreserve() {
    const auto range = Pick(ranges_);
    if (range == ranges_.end())
      return;
    for (uint64_t page = 0; page < range->second.pages; ++page) {
      if (IsMapped(range->first + page * kPage))
        return;
    }
    trace_.Add(trace::Unreserve{.address = range->first, .size = range->second.pages * kPage});
    ranges_.erase(range);
  }
  void Create() {
    const uint64_t pages = 1 + Below(4);
    handles_[++last_handle_] = {pages, false, {}};
    trace_.Add(trace::HandleCreate{.handle = last_handle_, .size = pages * kPage});
  }
  void Map() {
    const auto range = Pick(ranges_);
    const auto handle = Pick(handles_);
    if (range == ranges_.end() || handle == handles_.end() || handle->second.released)
      return;
    // Not always all of it.
    const uint64_t pages = 1 + Below(handle->second.pages);
    const uint64_t first = Below(range->second.pages);
    if (first + pages > range->second.pages)
      return;
    for (uint64_t page = first; page < first + pages; ++page) {
      if (IsMapped(range->first + page * kPage))
        return;
    }
    const uint64_t address = range->first + first * kPage;
    handle->second.mappings.push_back({address, pages});
    trace_.Add(trace::Map{.address = address, .size = pages * kPage, .handle = handle->first});
  }
  void Unmap() {
    const auto handle = Pick(handles_);
    if (handle == handles_.end() || handle->second.mappings.empty())
      return;
    const auto at = handle->second.mappings.begin() +
                    static_cast<ptrdiff_t>(Below(handle->second.mappings.size()));
    trace_.Add(trace::Unmap{.address = at->address, .size = at->pages * kPage});
    handle->second.mappings.erase(at);
    Drop(handle);
  }
  void Release() {
    const auto handle = Pick(handles_);
    if (handle == handles_.end() || std::exchange(handle->second.released, true))
      return;
    trace_.Add(trace::HandleRelease{.handle = handle->first});
    Drop(handle);
  }
  void Drop(std::map<uint64_t, Handle>::iterator handle) {
    if (handle->second.released && handle->second.mappings.empty())
      handles_.erase(handle);
  }
  void Alloc() {
    const auto range = Pick(ranges_);
    if (range == ranges_.end())
      return;
    const uint64_t end = range->first + range->second.pages * kPage;
    const uint64_t address = range->first + Below(range->second.pages * 4) * (kPage / 4);
    if (!range->second.cut && !IsMapped(address))
      return;
    const uint64_t size = std::min(end - address, 512 * (1 + Below(3 * kPage / 512)));
    const auto next = blocks_.upper_bound(address);
    if ((next != blocks_.end() && next->first < address + size) ||
        (next != blocks_.begin() && std::prev(next)->first + std::prev(next)->second > address))
      return;
    range->second.cut = true;
    blocks_[address] = size;
    trace_.Alloc(address, size);
  }
  void Free() {
    const auto block = Pick(blocks_);
    if (block == blocks_.end())
      return;
    trace_.Free(block->first);
    blocks_.erase(block);
  }

  std::mt19937 random_;
  TraceBuilder& trace_;
  std::map<uint64_t, Range> ranges_;
  std::map<uint64_t, Handle> handles_;
  std::map<uint64_t, uint64_t> blocks_;
  uint64_t top_ = kBase;
  uint64_t last_handle_ = 0;
};

TEST(Reservations, BytesStandWhereMemoryIsMappedAndNowhereElse) {
  uint64_t slept = 0;
  for (uint32_t seed = 0; seed < 25; ++seed) {
    TraceBuilder trace;
    trace.AddGpu(0);
    trace.AddProcess(100);
    RandomRanges program(seed, trace);
    std::vector<std::vector<uint64_t>> expected;
    for (int step = 0; step < 250; ++step) {
      program.Step();
      trace.Mark("step " + std::to_string(step));
      expected.push_back(program.Expected());
    }
    const auto recording = Analyse(trace);
    ASSERT_NE(recording, nullptr);
    for (size_t step = 0; step < expected.size(); ++step) {
      const auto report = MakeReport(*recording, At("mark:step " + std::to_string(step)));
      ASSERT_TRUE(report.ok());
      const uint64_t blocks = RowBytes(*report)["PyTorch / allocated"];
      const bool any = !report->devices.empty();
      const std::vector<uint64_t> found = {any ? report->devices[0].ledger_bytes : 0, blocks,
                                           any ? report->devices[0].unbacked_bytes : 0};
      ASSERT_EQ(found, expected[step]) << "seed " << seed << ", step " << step;
      slept += found[2];
    }
  }
  EXPECT_GT(slept, 0u);
}

}  // namespace
}  // namespace vramscope::query
