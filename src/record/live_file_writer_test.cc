// SPDX-License-Identifier: Apache-2.0
#include "record/live_file_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/coding.h"
#include "format/decoder.h"
#include "util/file.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

class LiveFileWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "live_file_writer_test.vrl";
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string Bytes() const {
    util::Result<std::string> bytes = util::ReadFile(path_, 64 << 20);
    return bytes.ok() ? *bytes : "";
  }
  static format::DeviceSample Sample(uint64_t begin, uint64_t used) {
    format::DeviceSample sample;
    sample.begin = begin;
    sample.end = begin + 3;
    sample.used = used;
    return sample;
  }
  // Decodes what is committed, as a reader does after a SIGKILL; checks sealed chunks.
  static std::vector<format::DeviceSample> Samples(const std::string& bytes) {
    std::vector<format::DeviceSample> samples;
    for (size_t at = format::kPageBytes; at + sizeof(format::ChunkHeader) <= bytes.size();) {
      format::ChunkHeader chunk{};
      std::memcpy(static_cast<void*>(&chunk), bytes.data() + at, sizeof chunk);
      EXPECT_EQ(chunk.magic, format::kChunkMagic);
      EXPECT_EQ(chunk.stream, 1u);
      const auto* cursor = reinterpret_cast<const uint8_t*>(bytes.data() + at + sizeof chunk);
      const uint8_t* const end = cursor + chunk.committed_bytes;
      // Every record is sealed as it is committed.
      const uint32_t crc = base::Crc32c(cursor, chunk.committed_bytes);
      EXPECT_EQ(chunk.seal, format::Halves(chunk.committed_bytes, crc));
      EXPECT_EQ(chunk.head,
                format::ChunkHead(reinterpret_cast<const uint8_t*>(&chunk), chunk.size_bytes));
      if (chunk.sealed != 0) {
        EXPECT_EQ(chunk.crc32c, crc);
      }
      format::DeltaState delta{.time = chunk.base_ticks, .address = 0};
      format::RawRecord raw;
      while (format::NextRecord(&cursor, end, &raw)) {
        format::DeviceSample sample;
        EXPECT_EQ(raw.type, format::DeviceSample::kType);
        EXPECT_TRUE(format::Decode(raw, &delta, &sample));
        samples.push_back(sample);
      }
      at += chunk.size_bytes;
    }
    return samples;
  }
  static const format::FileHeader& Header(const std::string& bytes) {
    return *reinterpret_cast<const format::FileHeader*>(bytes.data());
  }

  std::string path_;
};

TEST_F(LiveFileWriterTest, EveryRecordIsOnDiskAtOnce) {
  auto writer = LiveFileWriter::Create(util::CreateFile(path_), {"python", "train.py"});
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  (*writer)->Write(Sample(1000, 42));
  const std::string bytes = Bytes();
  const std::vector<format::DeviceSample> samples = Samples(bytes);
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].begin, 1000u);
  EXPECT_EQ(samples[0].end, 1003u);
  EXPECT_EQ(samples[0].used, 42u);
  EXPECT_EQ(Header(bytes).flags & format::kClosedCleanly, 0u);
  EXPECT_EQ(std::memcmp(Header(bytes).command, "python\0train.py", 16), 0);
}

TEST_F(LiveFileWriterTest, GoesOnInNewChunksAndSealsFullOnes) {
  auto writer = LiveFileWriter::Create(util::CreateFile(path_), {});
  ASSERT_TRUE(writer.ok());
  constexpr uint64_t kCount = 20'000;
  for (uint64_t i = 0; i < kCount; ++i)
    (*writer)->Write(Sample(i * 1'000'000, i << 30));
  (*writer)->Close();
  const std::string bytes = Bytes();
  const std::vector<format::DeviceSample> samples = Samples(bytes);
  ASSERT_EQ(samples.size(), kCount);
  for (uint64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(samples[i].begin, i * 1'000'000);
    ASSERT_EQ(samples[i].used, i << 30);
  }
  const format::FileHeader& header = Header(bytes);
  EXPECT_NE(header.flags & format::kClosedCleanly, 0u);
  EXPECT_EQ(header.end_bytes, bytes.size());
  EXPECT_GT(header.chunk_count, 1u);
  EXPECT_EQ(header.crc32c, format::HeaderChecksum(reinterpret_cast<const uint8_t*>(bytes.data())));
}

TEST_F(LiveFileWriterTest, AFullDiskIsCountedAndNothingElseIsHarmed) {
  auto writer = LiveFileWriter::Create(util::CreateFile(path_), {});
  ASSERT_TRUE(writer.ok());
  (*writer)->Write(Sample(1, 1));
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = std::filesystem::file_size(path_), .rlim_max = old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  for (uint64_t i = 0; i < 20'000; ++i)
    (*writer)->Write(Sample(i, i));
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  (*writer)->Close();
  const std::string bytes = Bytes();
  const uint64_t lost = Header(bytes).lost[static_cast<size_t>(format::Loss::kFileFull)];
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(Samples(bytes).size() + lost, 20'001u);
}

TEST_F(LiveFileWriterTest, RefusesToReplaceAFile) {
  ASSERT_TRUE(LiveFileWriter::Create(util::CreateFile(path_), {}).ok());
  const auto again = LiveFileWriter::Create(util::CreateFile(path_), {});
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.status().message().find(path_), std::string::npos);
}

}  // namespace
}  // namespace vramscope::cli
