// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "trace/testing/live_trace_fixture.h"

namespace vramscope::trace {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::LiveFileBuilder;

TEST_F(LiveTraceTest, SkipsUnknownRecordsByLength) {
  LiveFileBuilder file;
  auto& main = file.Stream(1);
  main.Add(CpuAlloc(1, 0x1000, 1));
  main.AddRaw(std::string_view("\xee\x03new", 5));
  main.AddRaw(std::string("\xef\xff\x00\x02\x00\x00", 6) + std::string(512, 'x'));
  main.Add(CpuAlloc(2, 0x2000, 1));
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  auto trace = Open();
  EXPECT_EQ(OfKind<BlockAlloc>(Events(*trace)).size(), 2u);
  EXPECT_EQ(LossCount(*trace, format::Loss::kUnknownRecord), 2u);
}

TEST_F(LiveTraceTest, SkipsADamagedChunkAndSaysSo) {
  LiveFileBuilder file;
  auto& main = file.Stream(1);
  const uint64_t stack = main.PyFrame(0, "a.py", "early", 1);
  main.Add(CpuAlloc(1, 0x1000, 1, stack));
  main.Seal();
  const uint64_t lost_stack = main.PyFrame(0, "a.py", "lost", 2);
  main.Add(CpuAlloc(2, 0x2000, 1));
  main.Seal();
  main.Add(CpuAlloc(3, 0x3000, 1, lost_stack));
  main.Add(CpuAlloc(4, 0x4000, 1, stack));
  std::string bytes = file.Bytes();
  bytes[2 * format::kPageBytes + 70] ^= 1;  // in the second chunk's records
  WriteBytes("1.vrl", bytes);
  auto trace = Open();
  const auto allocs = OfKind<BlockAlloc>(Events(*trace));
  ASSERT_EQ(allocs.size(), 3u);
  EXPECT_EQ(allocs[1].As<BlockAlloc>().address, 0x3000u);
  EXPECT_EQ(allocs[1].As<BlockAlloc>().stack, StackId{});
  EXPECT_EQ(allocs[2].As<BlockAlloc>().stack, allocs[0].As<BlockAlloc>().stack);
  EXPECT_EQ(LossCount(*trace, format::Loss::kDamagedBytes), 1u);
  EXPECT_EQ(LossCount(*trace, format::Loss::kUnknownStack), 1u);

  // A chunk header that is gone: found again at the next page with the magic.
  bytes = file.Bytes();
  std::memset(bytes.data() + 2 * format::kPageBytes, 0x55, 64);
  WriteBytes("1.vrl", bytes);
  trace = Open();
  EXPECT_EQ(OfKind<BlockAlloc>(Events(*trace)).size(), 3u);
  EXPECT_EQ(LossCount(*trace, format::Loss::kDamagedBytes), 1u);
}

TEST_F(LiveTraceTest, CountsTheRecordThatWasBeingWritten) {
  LiveFileBuilder file;
  file.Stream(1).Add(CpuAlloc(1, 0x1000, 1));
  std::string bytes = file.Bytes();
  uint32_t committed;
  std::memcpy(&committed,
              bytes.data() + format::kPageBytes + offsetof(format::ChunkHeader, committed_bytes),
              4);
  const size_t end = format::kPageBytes + sizeof(format::ChunkHeader) + committed;
  bytes[end] = 0x10;  // a record begun after the last commit
  bytes[end + 1] = 0x08;
  WriteBytes("1.vrl", bytes);
  auto trace = Open();
  EXPECT_EQ(OfKind<BlockAlloc>(Events(*trace)).size(), 1u);
  EXPECT_EQ(LossCount(*trace, format::Loss::kUnfinishedRecord), 1u);
}

TEST_F(LiveTraceTest, AFileThatWasJustBeingMadeIsNoLoss) {
  LiveFileBuilder file;
  file.Stream(1).Add(CpuAlloc(1, 0x1000, 1));
  std::string bytes = file.Bytes();
  WriteBytes("1.vrl", bytes);
  std::memset(bytes.data() + 4, 0, 4);  // the last of the magic comes last
  WriteBytes("2.vrl", bytes.substr(0, format::kPageBytes));
  EXPECT_EQ(LossCount(*Open(), format::Loss::kDamagedBytes), 0u);
  std::memset(bytes.data(), 0, 8);  // an older vramscope wrote all of it last
  WriteBytes("2.vrl", bytes.substr(0, format::kPageBytes));
  EXPECT_EQ(LossCount(*Open(), format::Loss::kDamagedBytes), 0u);
  WriteBytes("2.vrl", bytes);
  EXPECT_EQ(LossCount(*Open(), format::Loss::kDamagedBytes), 1u);
  EXPECT_EQ(LossCount(*Open(), format::Loss::kUnfinishedRecord), 0u);
  WriteBytes("3.vrl", "");  // its process was killed as it made it, or it was cut: unknown
  EXPECT_EQ(LossCount(*Open(), format::Loss::kDamagedBytes), 1u);
  EXPECT_EQ(LossCount(*Open(), format::Loss::kUnfinishedRecord), 1u);
}

TEST_F(LiveTraceTest, AFileOfMoreThanAPageThatIsZeroIsALoss) {
  LiveFileBuilder file;
  file.Stream(1).Add(CpuAlloc(1, 0x1000, 1));
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  WriteBytes("2.vrl", std::string(format::kPageBytes, '\0'));
  EXPECT_EQ(LossCount(*Open(), format::Loss::kDamagedBytes), 0u);
  WriteBytes("2.vrl", std::string(81 * format::kPageBytes, '\0'));
  const auto trace = Open();
  EXPECT_EQ(LossCount(*trace, format::Loss::kDamagedBytes), 1u);
  EXPECT_EQ(trace->losses()[0].bytes, 81 * format::kPageBytes);
}

TEST_F(LiveTraceTest, FilesThatTheManifestHasAndTheDirectoryHasNotAreALoss) {
  LiveFileBuilder file;
  file.Stream(1).Add(CpuAlloc(1, 0x1000, 1));
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  const std::string start = format::kManifestStart;
  WriteBytes("manifest", start + "1.vrl\n");
  EXPECT_EQ(LossCount(*Open(), format::Loss::kMissingFiles), 0u);
  // The last line was cut off, and one line does not name a live file.
  WriteBytes("manifest", start + "1.vrl\n2.vrl\n3.vrl\n../4.vrl\nnotes\n5.vr");
  const auto trace = Open();
  EXPECT_EQ(LossCount(*trace, format::Loss::kMissingFiles), 2u);
  EXPECT_THAT(trace->session().notes,
              ::testing::Contains(std::pair<std::string, std::string>("missing file", "3.vrl")));
  fs::remove(Path("1.vrl"));
  EXPECT_THAT(OpenTrace(directory_).status().message(), HasSubstr("its files are missing"));
}

TEST_F(LiveTraceTest, CarriesTheWritersOwnLosses) {
  LiveFileBuilder file;
  file.AddLoss(format::Loss::kFileFull, 12);
  file.Stream(1).Add(format::Lost{.loss = 13, .count = 2});
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  auto trace = Open();
  EXPECT_EQ(LossCount(*trace, format::Loss::kFileFull), 12u);
  EXPECT_EQ(LossCount(*trace, format::Loss::kNotRecorded), 2u);
}

TEST_F(LiveTraceTest, EveryTruncationKeepsWhatIsBeforeIt) {
  LiveFileBuilder file;
  for (uint32_t stream = 1; stream <= 2; ++stream) {
    auto& out = file.Stream(stream);
    for (uint64_t i = 0; i < 200; ++i) {
      out.Add(CpuAlloc(i * 10, (stream << 20) + i * 64, 1, out.PyFrame(0, "a.py", "f", 1 + i % 3)));
    }
  }
  const std::string bytes = file.Bytes();
  size_t last_count = 0;
  for (size_t cut = format::kPageBytes; cut <= bytes.size(); cut += cut < 4400 ? 1 : 97) {
    WriteBytes("1.vrl", bytes.substr(0, cut));
    auto trace = Open();
    ASSERT_NE(trace, nullptr);
    const size_t count = OfKind<BlockAlloc>(Events(*trace)).size();
    EXPECT_GE(count, last_count) << cut;
    last_count = count;
  }
  WriteBytes("1.vrl", bytes);
  EXPECT_EQ(OfKind<BlockAlloc>(Events(*Open())).size(), 400u);
  for (const size_t cut : {0u, 1u, 8u, 100u, 3000u}) {
    WriteBytes("1.vrl", bytes.substr(0, cut));
    auto trace = OpenTrace(directory_);
    ASSERT_FALSE(trace.ok());
    EXPECT_THAT(trace.status().message(), HasSubstr("is not a live file of vramscope"));
  }
}

TEST_F(LiveTraceTest, RandomDamageNeverStopsTheReader) {
  LiveFileBuilder file;
  auto& main = file.Stream(1);
  main.Thread(3, "main");
  for (uint64_t i = 0; i < 300; ++i) {
    main.Add(CpuAlloc(i * 10, i * 64, i, main.PyFrame(0, "a.py", "f", 1 + i % 9)));
    if (i % 7 == 0)
      main.Add(format::NativeStack{.id = 100000 + i, .parent = 0, .pc = 0x400000 + i});
  }
  const std::string good = file.Bytes();
  std::mt19937_64 random(42);
  for (int round = 0; round < 400; ++round) {
    std::string bytes = good;
    for (int flips = 0; flips < 1 + round % 20; ++flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    WriteBytes("1.vrl", bytes);
    auto trace = OpenTrace(directory_);
    if (!trace.ok())
      continue;
    const auto events = Events(**trace);
    EXPECT_EQ(events.size(), (*trace)->session().event_count);
  }
}

TEST_F(LiveTraceTest, ErrorsAreOneClearLine) {
  auto trace = OpenTrace(directory_);
  EXPECT_THAT(trace.status().message(), HasSubstr("contains no recording"));
  trace = OpenTrace(Path("none.vram"));
  EXPECT_THAT(trace.status().message(), HasSubstr("none.vram: does not exist"));
  LiveFileBuilder newer({.major = format::kMajorVersion + 1});
  ASSERT_TRUE(newer.Write(Path("1.vrl")));
  trace = OpenTrace(directory_);
  EXPECT_THAT(trace.status().message(), HasSubstr("recorded by a newer vramscope"));
}

TEST_F(LiveTraceTest, StandsInForAMissingVram) {
  fs::create_directories(Path("a.vram.d"));
  LiveFileBuilder file;
  file.Stream(1).Add(CpuAlloc(1, 0x1000, 1));
  ASSERT_TRUE(file.Write(Path("a.vram.d/1.vrl")));
  WriteBytes("a.vram.d/session.json",
             R"({"name": "first light", "version": "1.2.3", "command": ["python", "a b.py"],
                 "options": {"cpu": true, "ring": null}, "python": null, "start_wall_ns": 17,
                 "host": "node7", "odd": "\u00fc\ud83d\ude00\n")");
  auto trace = OpenTrace(Path("a.vram"));
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ((*trace)->session().path, Path("a.vram"));
  EXPECT_EQ((*trace)->session().name, "first light");
  EXPECT_EQ((*trace)->session().version, "1.2.3");
  EXPECT_EQ((*trace)->session().host, "node7");
  EXPECT_THAT(
      (*trace)->session().notes,
      ::testing::ElementsAre(std::pair("options", "cpu=true ring=null"), std::pair("host", "node7"),
                             std::pair("odd", "\xc3\xbc\xf0\x9f\x98\x80\n"),
                             std::pair("function names and source lines",
                                       "not looked up: it was copied, or not recorded by "
                                       "vramscope run")));
}

}  // namespace
}  // namespace vramscope::trace
