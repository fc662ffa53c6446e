// SPDX-License-Identifier: Apache-2.0
#include "util/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace vramscope::util {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / ("vramscope_file_test_" + std::to_string(getpid()));
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string Path(const char* name) const { return directory_ / name; }

  fs::path directory_;
};

TEST_F(FileTest, AtomicFileAppearsOnlyWhenCommitted) {
  {
    auto file = AtomicFile::Create(Path("a"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Write("hello").ok());
    EXPECT_FALSE(fs::exists(Path("a")));
    EXPECT_EQ(file->offset(), 5u);
    ASSERT_TRUE(file->Commit().ok());
  }
  EXPECT_EQ(*ReadFile(Path("a"), 100), "hello");
  {
    auto file = AtomicFile::Create(Path("a"));
    ASSERT_TRUE(file->Write("other").ok());
  }
  EXPECT_EQ(*ReadFile(Path("a"), 100), "hello");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 1)
      << "a temporary file was left";
}

TEST_F(FileTest, MapsAFile) {
  auto file = AtomicFile::Create(Path("m"));
  ASSERT_TRUE(file->Write(std::string(10000, 'x')).ok());
  ASSERT_TRUE(file->Commit().ok());
  auto mapped = MappedFile::Open(Path("m"));
  ASSERT_TRUE(mapped.ok());
  MappedFile moved = std::move(*mapped);
  ASSERT_EQ(moved.bytes().size(), 10000u);
  EXPECT_EQ(moved.bytes()[9999], 'x');
  moved.Forget(0, 10000);
  EXPECT_EQ(moved.bytes()[0], 'x');
}

TEST_F(FileTest, EmptyFileHasNoBytes) {
  auto file = AtomicFile::Create(Path("e"));
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_TRUE(MappedFile::Open(Path("e"))->bytes().empty());
}

TEST_F(FileTest, ErrorsNameThePath) {
  EXPECT_EQ(MappedFile::Open(Path("none")).status().message(),
            Path("none") + ": cannot be opened: No such file or directory");
  EXPECT_EQ(MappedFile::Open(directory_).status().message(),
            directory_.string() + ": is not a regular file");
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_FALSE(ReadFile(Path("fifo"), 10).ok());
  EXPECT_FALSE(AtomicFile::Create(Path("no/such/dir")).ok());
  auto file = AtomicFile::Create(Path("big"));
  ASSERT_TRUE(file->Write("0123456789").ok());
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(*ReadFile(Path("big"), 10), "0123456789");
  EXPECT_FALSE(ReadFile(Path("big"), 9).ok());
}

}  // namespace
}  // namespace vramscope::util
