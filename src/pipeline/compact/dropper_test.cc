// SPDX-License-Identifier: Apache-2.0
#include "pipeline/compact/dropper.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "trace/live/live_trace.h"
#include "trace/testing/live_file_builder.h"

namespace vramscope::compact {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kStartNs = 1'000'000'000;
// Address, bytes, tag.
using Live = std::map<uint64_t, std::pair<uint64_t, std::string>>;

// A random program of three threads that free each other's blocks, all of it in one process.
class DropperTest : public ::testing::Test {
 protected:
  DropperTest() { fs::create_directories(directory_); }
  ~DropperTest() override { fs::remove_all(directory_); }

  void WriteProgram(unsigned seed, int events) {
    std::mt19937 random(seed);
    trace::testing::LiveFileBuilder file({.sealed_tails = true});
    std::vector<uint64_t> live;
    uint64_t time = kStartNs, next = 0x10000;
    for (int i = 0; i < events; ++i) {
      auto& out = file.Stream(1 + random() % 3);
      time += 1100 + random() % 2000;
      if (i % 500 == 499) {
        out.Add(format::Mark{.time = time, .name = {"iteration", 9}});
      } else if (live.size() < 20 || random() % 2 == 0) {
        while (std::find(live.begin(), live.end(), next) != live.end())
          next += 64;
        out.Add(format::BlockAlloc{.time = time, .address = next, .size = next / 16, .device = -1});
        if (random() % 4 == 0)
          out.Add(format::Name{.time = time + 1,
                               .address = next,
                               .device = -1,
                               .kind = static_cast<uint64_t>(format::NameKind::kTag),
                               .name = out.String("tag" + std::to_string(random() % 5))});
        live.push_back(next);
        next += 64;
      } else {
        std::swap(live[random() % live.size()], live.back());
        out.Add(format::BlockFree{.time = time, .address = live.back(), .device = -1});
        // Addresses are used again.
        if (random() % 3 == 0)
          next = live.back();
        live.pop_back();
      }
    }
    ASSERT_TRUE(file.Write(path_));
  }

  // What lived at an instant.
  Live LiveAt(int64_t at_ns) {
    auto opened = trace::LiveTrace::Open(directory_, directory_, {});
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    Live live;
    trace::Trace& trace = **opened;
    EXPECT_TRUE(trace
                    .ForEachEvent([&](std::span<const trace::Event> events) {
                      for (const trace::Event& event : events) {
                        if (event.time_ns > at_ns)
                          break;
                        if (event.Is<trace::BlockAlloc>()) {
                          const auto& block = event.As<trace::BlockAlloc>();
                          live[block.address] = {block.size, ""};
                        } else if (event.Is<trace::BlockFree>()) {
                          live.erase(event.As<trace::BlockFree>().address);
                        } else if (event.Is<trace::Name>()) {
                          const auto& name = event.As<trace::Name>();
                          live[name.address].second = trace.string(name.name);
                        }
                      }
                    })
                    .ok());
    return live;
  }

  // The most bytes at once, and when.
  std::pair<uint64_t, int64_t> Peak() {
    auto opened = trace::LiveTrace::Open(directory_, directory_, {});
    std::map<uint64_t, uint64_t> live;
    uint64_t bytes = 0;
    std::pair<uint64_t, int64_t> most;
    EXPECT_TRUE((*opened)
                    ->ForEachEvent([&](std::span<const trace::Event> events) {
                      for (const trace::Event& event : events) {
                        if (event.Is<trace::BlockAlloc>()) {
                          const auto& block = event.As<trace::BlockAlloc>();
                          bytes += live[block.address] = block.size;
                          if (bytes > most.first)
                            most = {bytes, event.time_ns + 10};  // and its names
                        } else if (event.Is<trace::BlockFree>()) {
                          const uint64_t address = event.As<trace::BlockFree>().address;
                          bytes -= live[address];
                          live.erase(address);
                        }
                      }
                    })
                    .ok());
    return most;
  }

  // Drops so much, as the compactor does. How many allocations that were.
  uint64_t Drop(uint64_t bytes, const Dropper::Instants& instants) {
    trace::LossCounter losses;
    std::vector<trace::LiveFile> files;
    files.push_back(std::move(*trace::LiveFile::Open(path_, &losses, true)));
    CompactionPlan plan = ChooseOldest(files, bytes, INT64_MAX).front();
    EXPECT_TRUE(plan.has_chunks());
    const trace::TickClock clock = ClockOfChunks(files[0]);
    Dropper(files[0], clock, instants, &plan).Run();
    const CompactionFile past = MakePastFile(files[0], clock, plan);
    EXPECT_FALSE(past.ranges.empty());
    iterations_ = plan.iterations;
    past_bytes_ = past.bytes.size();
    std::ofstream(trace::PastPathOf(path_), std::ios::binary)
        .write(reinterpret_cast<const char*>(past.bytes.data()),
               static_cast<std::streamsize>(past.bytes.size()));
    return plan.dropped.count;
  }

  const fs::path directory_ =
      fs::temp_directory_path() / ("dropper_test." + std::to_string(getpid()) + ".vram.d");
  const std::string path_ = directory_ / "100.1.vrl";
  uint64_t iterations_ = 0;
  size_t past_bytes_ = 0;
};

TEST_F(DropperTest, WhatLivesStaysAndSoDoInstants) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    fs::remove(trace::PastPathOf(path_));
    WriteProgram(seed, 6000);
    const auto instant_ns = static_cast<int64_t>(kStartNs + 1'500'000);
    const Live then = LiveAt(instant_ns), end = LiveAt(INT64_MAX);
    ASSERT_GT(then.size(), 5u);
    const Dropper::Instants instants = {{-1, {instant_ns}}};
    const uint64_t step = fs::file_size(path_) / 5;
    uint64_t dropped = 0;
    for (int i = 0; i < 3; ++i) {
      dropped += Drop(step, instants);
      EXPECT_EQ(LiveAt(instant_ns), then) << seed << " " << i;
      EXPECT_EQ(LiveAt(INT64_MAX), end) << seed << " " << i;
    }
    EXPECT_GT(dropped, 1000u);
    EXPECT_GE(iterations_, 6u);
    // What was dropped takes no space.
    EXPECT_LT(past_bytes_, 3 * step);
    auto trace = trace::LiveTrace::Open(directory_, directory_, {});
    ASSERT_TRUE(trace.ok());
    ASSERT_TRUE((*trace)->ForEachEvent([](std::span<const trace::Event>) {}).ok());
    uint64_t lost = 0;
    for (const trace::Loss& loss : (*trace)->losses())
      lost += loss.name == format::LossName(static_cast<uint64_t>(format::Loss::kDropped))
                  ? loss.count
                  : 0;
    EXPECT_EQ(lost, dropped);
  }
}

TEST_F(DropperTest, WithoutInstantsItFindsThePeak) {
  WriteProgram(4, 6000);
  const Live end = LiveAt(INT64_MAX), peak = LiveAt(Peak().second);
  const uint64_t most = Peak().first;
  const uint64_t step = fs::file_size(path_) / 5;
  const uint64_t first = Drop(step, {});
  const size_t past_bytes = past_bytes_;
  EXPECT_GT(Drop(step, {}), first / 2);
  EXPECT_LT(past_bytes_, past_bytes + format::kPageBytes * 6);
  const uint64_t step_end = fs::file_size(path_);
  (void)Drop(step_end, {});  // all but the last chunks
  EXPECT_EQ(Peak().first, most);
  EXPECT_EQ(LiveAt(Peak().second), peak);
  EXPECT_EQ(LiveAt(INT64_MAX), end);
}

}  // namespace
}  // namespace vramscope::compact
