// SPDX-License-Identifier: Apache-2.0
// A file that several threads look through leaves the tables and figures of a walk.
#include <gtest/gtest.h>

#include <random>

#include "trace/live/scan.h"
#include "trace/testing/live_file_builder.h"

namespace vramscope::trace {
namespace {

using testing::LiveFileBuilder;

struct Scanned {
  tables::Dictionaries dictionaries;
  std::vector<Thread> threads = std::vector<Thread>(1);
  LossCounter losses;
  FileScan scan;
};

Scanned Scan(const std::string& bytes, size_t workers) {
  Scanned all;
  auto file = LiveFile::FromBytes({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                                  "x.vrl", &all.losses);
  EXPECT_TRUE(file.ok());
  ScanTables into{&all.dictionaries, &all.threads, {}, &all.losses, nullptr};
  all.scan = ScanFile(*file, ProcessId{0}, &into, workers);
  return all;
}

void ExpectSame(const Scanned& a, const Scanned& b) {
  ASSERT_EQ(a.dictionaries.text_count(), b.dictionaries.text_count());
  for (uint32_t i = 0; i < a.dictionaries.text_count(); ++i)
    EXPECT_EQ(a.dictionaries.text(StringId{i}), b.dictionaries.text(StringId{i}));
  EXPECT_EQ(a.dictionaries.frame_count(), b.dictionaries.frame_count());
  EXPECT_EQ(a.dictionaries.stack_count(), b.dictionaries.stack_count());
  EXPECT_EQ(a.scan.logs, b.scan.logs);
  EXPECT_EQ(a.scan.event_count, b.scan.event_count);
  EXPECT_EQ(a.scan.last_ticks, b.scan.last_ticks);
  EXPECT_EQ(a.scan.anchors.size(), b.scan.anchors.size());
  ASSERT_EQ(a.scan.devices.size(), b.scan.devices.size());
  for (const auto& [local, device] : a.scan.devices)
    EXPECT_TRUE(b.scan.devices.contains(local)) << local;
  const auto losses = [](const Scanned& of) {
    std::map<std::string, std::pair<uint64_t, uint64_t>> rows;
    for (const Loss& loss : of.losses.Rows())
      rows[loss.name] = {loss.count, loss.bytes};
    return rows;
  };
  EXPECT_EQ(losses(a), losses(b));
}

// Two threads' streams: most chunks are events alone; some define, some bring texts, one has an
// unknown record.
std::string File(uint32_t seed) {
  std::mt19937 random(seed);
  LiveFileBuilder file({.pid = 42});
  for (const uint32_t number : {1u, 2u}) {
    auto& stream = file.Stream(number);
    uint64_t time = 1000;
    std::vector<uint64_t> stacks{0};
    for (int i = 0; i < 20'000; ++i) {
      time += random() % 1000;
      const uint64_t address = 0x1000 + 16 * (random() % 4096);
      switch (random() % 4000) {
        case 0:
          stacks.push_back(stream.PyFrame(stacks.back(), "train.py", "step", 1 + random() % 50));
          break;
        case 1:
          stream.Add(format::Mark{.time = time, .name = {"epoch", 5}});
          break;
        case 2:
          stream.Add(format::Anchor{.time = time, .monotonic_ns = time});
          break;
        case 3:  // of an undefined stack
          stream.Add(format::BlockAlloc{.time = time,
                                        .address = address,
                                        .size = 64,
                                        .device = 0,
                                        .stack = 900'000 + random() % 3});
          break;
        case 4:  // of one that no writer has
          stream.Add(format::BlockAlloc{.time = time,
                                        .address = address,
                                        .size = 64,
                                        .device = 1,
                                        .stack = uint64_t{1} << 40});
          break;
        case 5:
          stream.AddRaw(std::string({0x3f, 2, 1, 1}));  // a record of a later version
          break;
        default:
          if (random() % 2 != 0)
            stream.Add(format::BlockAlloc{.time = time,
                                          .address = address,
                                          .size = 512,
                                          .device = -1,
                                          .stack = stacks[random() % stacks.size()]});
          else
            stream.Add(format::BlockFree{.time = time, .address = address, .device = -1});
      }
    }
  }
  return file.Bytes();
}

TEST(SkimTest, ThreadsLeaveWhatAWalkLeaves) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    const std::string bytes = File(seed);
    const Scanned walked = Scan(bytes, 1);
    EXPECT_GT(walked.scan.event_count, 35'000u);
    ExpectSame(walked, Scan(bytes, 3));
  }
}

TEST(SkimTest, DamageCountsOnce) {
  std::mt19937 random(7);
  const std::string whole = File(3);
  for (int i = 0; i < 20; ++i) {
    std::string bytes = whole;
    for (int flips = 0; flips < 8; ++flips)
      bytes[4096 + random() % (bytes.size() - 4096)] ^= static_cast<char>(1 + random() % 255);
    ExpectSame(Scan(bytes, 1), Scan(bytes, 3));
  }
}

TEST(SkimTest, MostChunksAreTold) {
  const std::string bytes = File(1);
  LossCounter losses;
  const auto file = LiveFile::FromBytes(
      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "x.vrl", &losses);
  ASSERT_TRUE(file.ok());
  size_t told = 0;
  const auto& chunks = file->streams()[0];
  for (const ChunkSkim& skim : SkimChunks(*file, chunks, 2))
    told += skim.is_told ? 1 : 0;
  EXPECT_GT(told, chunks.size() / 2);
  EXPECT_LT(told, chunks.size());
}

}  // namespace
}  // namespace vramscope::trace
