// SPDX-License-Identifier: Apache-2.0
#include "trace/file/live_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include "base/coding.h"
#include "format/decoder.h"
#include "trace/testing/live_file_builder.h"

namespace vramscope::trace {
namespace {

using testing::LiveFileBuilder;

// Two threads, the first with two chunks, as a program leaves them that ended normally.
std::string WholeFile() {
  LiveFileBuilder file({.sealed_tails = true});
  for (uint32_t stream = 1; stream <= 2; ++stream) {
    auto& out = file.Stream(stream);
    for (uint64_t i = 0; i < 4; ++i) {
      out.Add(format::BlockAlloc{
          .time = kStart + i * 10, .address = (stream << 20) + i * 64, .size = 512, .device = -1});
      if (i == 1 && stream == 1)
        out.Seal();
    }
  }
  file.AddLoss(format::Loss::kFileFull, 5);
  return file.Bytes();
}

struct Reading {
  std::string facts;   // all that a reader gets to see
  std::string losses;  // the losses that it counts
};

Reading Read(const std::string& bytes) {
  LossCounter losses;
  const std::span data(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  const auto file = LiveFile::FromBytes(data, "1.vrl", &losses);
  Reading reading;
  std::ostringstream out;
  if (file.ok()) {
    out << file->is_launcher() << file->ticks_are_tsc() << file->closed_cleanly() << ' '
        << file->pid() << ' ' << file->parent_pid() << ' ' << file->start_ticks() << ' '
        << file->start_ns() << ' ' << file->start_wall_ns() << ' ' << file->anchor_ns() << ' '
        << file->command() << ' ' << file->executable();
    for (const auto& stream : file->streams()) {
      for (const ChunkRef& chunk : stream) {
        const auto records = file->Records(chunk);
        // If records end before a valid one, the caller that walks them counts the loss.
        const uint8_t* at = records.data();
        const uint8_t* const end = at + records.size();
        for (format::RawRecord record; at != end && format::NextRecord(&at, end, &record);) {
        }
        if (at != end)
          losses.Add(format::Loss::kDamagedBytes, 1, static_cast<uint64_t>(end - at));
        out << '\n'
            << chunk.stream << ' ' << chunk.sequence << ' ' << chunk.tid << ' ' << chunk.base_ticks
            << ' ' << chunk.base_ns << ' '
            << base::Crc32c(records.data(), static_cast<size_t>(at - records.data()));
      }
    }
  } else {
    losses.Add(format::Loss::kDamagedBytes, 1,
               bytes.size());  // as the code that opens a directory does
  }
  reading.facts = out.str();
  for (const Loss& loss : losses.Rows())
    reading.losses +=
        loss.name + " " + std::to_string(loss.count) + " " + std::to_string(loss.bytes) + "\n";
  return reading;
}

TEST(LiveFileTest, NoBitOfASealedFileChangesItsMeaningInSilence) {
  const std::string whole = WholeFile();
  const Reading expected = Read(whole);
  EXPECT_EQ(expected.losses, "events dropped: no room for the trace 5 0\n");
  size_t told = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    // Every bit of what means something, some of the zeros around it.
    const bool is_zero = whole[at] == 0 && at % format::kPageBytes > 512;
    for (int bit = 0; bit < (is_zero ? 1 : 8); ++bit) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
      const Reading reading = Read(damaged);
      told += reading.losses != expected.losses;
      EXPECT_TRUE(reading.facts == expected.facts || reading.losses != expected.losses)
          << "bit " << bit << " of byte " << at << "\n"
          << reading.facts << "\nfor\n"
          << expected.facts;
    }
  }
  EXPECT_GT(told, 4000u);
}

TEST(LiveFileTest, AFileThatWasCutBetweenChunksSaysSo) {
  const std::string whole = WholeFile();
  const std::string losses = Read(whole).losses;
  for (size_t pages = 1; pages * format::kPageBytes < whole.size(); ++pages)
    EXPECT_NE(Read(whole.substr(0, pages * format::kPageBytes)).losses, losses) << pages;
}

TEST(LiveFileTest, AChunkThatIsGoneOrThereTwiceIsCounted) {
  const std::string whole = WholeFile();
  const Reading expected = Read(whole);
  const size_t page = format::kPageBytes;
  std::string zeroed = whole;
  std::memset(zeroed.data() + 2 * page, 0, page);
  EXPECT_NE(Read(zeroed).losses, expected.losses);
  std::string copied = whole;
  std::memcpy(copied.data() + 2 * page, copied.data() + page, page);
  EXPECT_NE(Read(copied).losses, expected.losses);
  const Reading longer = Read(whole + whole.substr(page, page));
  EXPECT_EQ(longer.facts, expected.facts);
  EXPECT_NE(longer.losses, expected.losses);
}

TEST(LiveFileTest, AChunkThatWasJustBeingBegunIsNoDamage) {
  std::string bytes = WholeFile();
  const Reading expected = Read(bytes);
  std::string page(format::kPageBytes, '\0');
  page[offsetof(format::ChunkHeader, stream)] = 3;
  page[offsetof(format::ChunkHeader, base_ns)] = 7;
  const Reading begun = Read(bytes + page);
  EXPECT_EQ(begun.facts, expected.facts);
  EXPECT_EQ(begun.losses, expected.losses);
}

TEST(LiveFileTest, TheLaunchersFileCountsForThoseThatHaveNone) {
  std::string bytes = LiveFileBuilder({.writer = format::WriterKind::kLauncher}).Bytes();
  const uint64_t count = 400'000;
  const auto slot = static_cast<size_t>(format::Loss::kFileFull) * sizeof count;
  std::memcpy(bytes.data() + offsetof(format::FileHeader, lost_by_others) + slot, &count,
              sizeof count);
  EXPECT_EQ(Read(bytes).losses, "events dropped: no room for the trace 400000 0\n");
}

}  // namespace
}  // namespace vramscope::trace
