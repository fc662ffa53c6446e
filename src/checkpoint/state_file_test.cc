// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/state_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

class StateFileTest : public ::testing::Test {
 protected:
  StateFileTest() {
    fs::create_directories(first_);
    fs::create_directories(second_);
  }
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
  static std::vector<fs::path> Below(const std::string& folder) {
    return {fs::directory_iterator(folder), fs::directory_iterator()};
  }

  const std::string base_ =
      fs::temp_directory_path() / ("state_file_test." + std::to_string(getpid()));
  // Folders that all users share.
  const std::string first_ = base_ + "/first";
  const std::string second_ = base_ + "/second";
};

TEST_F(StateFileTest, WhatIsSavedIsRead) {
  ASSERT_TRUE((*Open())->Save(Sample()).ok());
  ASSERT_EQ(Below(first_).size(), 1u);
  const std::string directory = Below(first_).front();
  struct stat info {};
  ASSERT_EQ(stat((directory + "/yield-42").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(directory.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  const auto file = Open();
  const std::optional<YieldState> state = (*file)->Read(777);
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(FormatYieldState(*state), FormatYieldState(Sample()));
  EXPECT_EQ(state->devices[1].uuid, "GPU-b");
  EXPECT_EQ(state->live_directory, "/runs/a b.vram.d");
  (*file)->Remove();
  EXPECT_TRUE(fs::is_empty(first_));
}

TEST_F(StateFileTest, AnotherProcessWithThisNumberHasNone) {
  ASSERT_TRUE((*Open())->Save(Sample()).ok());
  EXPECT_FALSE((*Open())->Read(778).has_value());
}

TEST_F(StateFileTest, NothingSavedLeavesNothing) {
  EXPECT_FALSE((*Open())->Read(777).has_value());
  EXPECT_TRUE(fs::is_empty(first_));
}

TEST_F(StateFileTest, AFileInTheSecondFolderIsFound) {
  ASSERT_TRUE((*StateFile::Open(42, {second_}))->Save(Sample()).ok());
  EXPECT_TRUE((*Open())->Read(777).has_value());
}

TEST_F(StateFileTest, ProcessesShareADirectory) {
  const auto one = Open();
  const auto other = StateFile::Open(43, {first_, second_});
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(Below(first_).size(), 1u);
}

TEST_F(StateFileTest, OneAtATime) {
  const auto one = Open();
  const auto other = Open();
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.status().message(),
            "another vramscope is working on process 42: try again later");
}

TEST_F(StateFileTest, OneOfManyThatBeginAtOnce) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> holders{0};
    std::atomic<int> most{0};
    std::atomic<int> opened{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i) {
      threads.emplace_back([&] {
        const auto file = Open();
        if (!file.ok())
          return;
        ++opened;
        int now = ++holders;
        for (int known = most; known < now && !most.compare_exchange_weak(known, now);) {
        }
        usleep(2000);
        --holders;
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    EXPECT_EQ(most, 1);
    EXPECT_GE(opened, 1);
    EXPECT_TRUE(fs::is_empty(first_));
  }
}

TEST_F(StateFileTest, WhatOthersPutThereIsNotUsed) {
  const std::string theirs = base_ + "/theirs";
  fs::create_directories(theirs);
  fs::permissions(theirs, fs::perms::owner_all);
  fs::create_directory_symlink(theirs, first_ + "/vramscope-yield-link");
  const std::string open = first_ + "/vramscope-yield-open";
  fs::create_directories(open);
  chmod(open.c_str(), 0755);
  std::ofstream(first_ + "/vramscope-yield-file") << "text";
  ASSERT_TRUE((*Open())->Save(Sample()).ok());
  EXPECT_TRUE(fs::is_empty(theirs));
  EXPECT_TRUE(fs::is_empty(open));
  EXPECT_EQ(Below(first_).size(), 4u);
  // A link in place of the file.
  (*Open())->Remove();
  chmod(open.c_str(), 0700);
  std::ofstream(base_ + "/victim") << "text";
  fs::create_symlink(base_ + "/victim", open + "/yield-42");
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
