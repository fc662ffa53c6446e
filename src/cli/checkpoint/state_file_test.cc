// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint/state_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

class StateFileTest : public ::testing::Test {
 protected:
  StateFileTest() { fs::create_directories(base_); }
  ~StateFileTest() override { fs::remove_all(base_); }
  util::Result<std::unique_ptr<StateFile>> Open() { return StateFile::Open(42, {first_, second_}); }
  static YieldState Sample() {
    return {.start_ticks = 777,
            .yielded = true,
            .wall_seconds = 1'790'000'000,
            .bytes = 5'000'000'000,
            .live_directory = "/runs/a b.vram.d",
            .devices = {{"GPU-a", 3'000'000'000}, {"GPU-b", 2'000'000'000}}};
  }

  const std::string base_ =
      fs::temp_directory_path() / ("state_file_test." + std::to_string(getpid()));
  const std::string first_ = base_ + "/first";
  const std::string second_ = base_ + "/second";
};

TEST_F(StateFileTest, WhatIsSavedIsRead) {
  ASSERT_TRUE((*Open())->Save(Sample()).ok());
  struct stat info {};
  ASSERT_EQ(stat((first_ + "/yield-42").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(first_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  const auto file = Open();
  const std::optional<YieldState> state = (*file)->Read(777);
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(FormatYieldState(*state), FormatYieldState(Sample()));
  EXPECT_EQ(state->devices[1].uuid, "GPU-b");
  EXPECT_EQ(state->live_directory, "/runs/a b.vram.d");
  (*file)->Remove();
  EXPECT_FALSE(fs::exists(first_ + "/yield-42"));
}

TEST_F(StateFileTest, AnotherProcessWithThisNumberHasNone) {
  ASSERT_TRUE((*Open())->Save(Sample()).ok());
  EXPECT_FALSE((*Open())->Read(778).has_value());
}

TEST_F(StateFileTest, NothingSavedLeavesNothing) {
  EXPECT_FALSE((*Open())->Read(777).has_value());
  EXPECT_FALSE(fs::exists(first_ + "/yield-42"));
}

TEST_F(StateFileTest, AFileInTheSecondPlaceIsFound) {
  ASSERT_TRUE((*StateFile::Open(42, {second_}))->Save(Sample()).ok());
  EXPECT_TRUE((*Open())->Read(777).has_value());
}

TEST_F(StateFileTest, OneAtATime) {
  const auto one = Open();
  const auto other = Open();
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.status().message(), "another vramscope is at work on process 42 just now");
}

TEST_F(StateFileTest, LinksAndForeignDirectoriesAreNotUsed) {
  fs::create_directories(base_ + "/theirs");
  fs::create_directory_symlink(base_ + "/theirs", first_);
  fs::create_directories(second_);
  chmod(second_.c_str(), 0755);
  EXPECT_FALSE(Open().ok());
  EXPECT_TRUE(fs::is_empty(base_ + "/theirs"));
  EXPECT_TRUE(fs::is_empty(second_));
  // A link in place of the file.
  chmod(second_.c_str(), 0700);
  std::ofstream(base_ + "/victim") << "text";
  fs::create_symlink(base_ + "/victim", second_ + "/yield-42");
  EXPECT_FALSE(Open().ok());
  EXPECT_EQ(fs::file_size(base_ + "/victim"), 4u);
}

TEST_F(StateFileTest, DamagedTextIsNoState) {
  const std::string good = FormatYieldState(Sample());
  EXPECT_TRUE(ParseYieldState(good).has_value());
  for (size_t size = 0; size + 1 < good.size(); ++size)
    EXPECT_FALSE(ParseYieldState(good.substr(0, size)).has_value()) << size;
  EXPECT_FALSE(ParseYieldState("vramscope yield 1\nbytes x\nend\n").has_value());
  EXPECT_FALSE(ParseYieldState("something else\nend\n").has_value());
}

}  // namespace
}  // namespace vramscope::cli
