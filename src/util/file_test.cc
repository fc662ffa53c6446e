// SPDX-License-Identifier: Apache-2.0
#include "util/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "util/owned_file.h"

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

TEST_F(FileTest, LinksAreFollowedOnlyWhereTheyMayBe) {
  ASSERT_TRUE(AtomicFile::Create(Path("to"))->Commit().ok());
  fs::create_symlink(Path("to"), Path("link"));
  EXPECT_TRUE(MappedFile::Open(Path("link")).ok());
  EXPECT_EQ(MappedFile::Open(Path("link"), Links::kRefuse).status().message(),
            Path("link") + ": is a symbolic link");
  EXPECT_FALSE(ReadFile(Path("link"), 10, Links::kRefuse).ok());
  EXPECT_TRUE(ReadFile(Path("to"), 10, Links::kRefuse).ok());
}

}  // namespace
}  // namespace vramscope::util
