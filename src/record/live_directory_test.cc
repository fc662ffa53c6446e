// SPDX-License-Identifier: Apache-2.0
#include "pipeline/live_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "format/layout.h"
#include "record/live_file_writer.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

class LiveDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (fs::temp_directory_path() / "vramscope_live_directory_XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    live_ = folder + "/x.vram.d";
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A directory that is complete but has no name yet.
  util::OwnedDirectory Make(const std::string& name) const {
    auto directory = util::OwnedDirectory::CreateBeside(live_);
    EXPECT_TRUE(directory.ok()) << directory.status().message();
    EXPECT_TRUE(WriteSessionRecord(*directory, {.name = name, .command = {}, .options = ""}).ok());
    EXPECT_TRUE(LiveFileWriter::Create(directory->CreateFile(kLauncherFile), {name}).ok());
    EXPECT_TRUE(WriteManifest(*directory).ok());
    return std::move(*directory);
  }
  util::Status Place(util::OwnedDirectory* directory) {
    return PlaceLiveDirectory(directory, live_, &older_);
  }
  static std::string Text(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t Entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  fs::path folder_;
  std::string live_;
  std::optional<util::OwnedDirectory> older_;
};

TEST_F(LiveDirectoryTest, ARecordingThatNobodyFinishedIsKeptUntilTheNewOneIsWhole) {
  util::OwnedDirectory first = Make("first"), second = Make("second"), third = Make("third");
  ASSERT_TRUE(Place(&first).ok());
  EXPECT_FALSE(older_);
  EXPECT_EQ(Text(live_ + "/manifest"),
            std::string(format::kManifestStart) + format::kLauncherFile + "\n");
  ASSERT_TRUE(Place(&second).ok());
  ASSERT_TRUE(older_);
  EXPECT_NE(Text(OlderOf(live_) + "/session.json").find("first"), std::string::npos);
  EXPECT_NE(Text(live_ + "/session.json").find("second"), std::string::npos);
  ASSERT_TRUE(Place(&third).ok());
  EXPECT_NE(Text(OlderOf(live_) + "/session.json").find("second"), std::string::npos);
  EXPECT_TRUE(RemoveLiveDirectory(third).ok());
  EXPECT_TRUE(RemoveOlder(live_).ok());
  EXPECT_EQ(Entries(), 0u);
}

TEST_F(LiveDirectoryTest, ARecordingUnderWayOrBeingFinishedKeepsItsName) {
  util::OwnedDirectory first = Make("first"), second = Make("second");
  ASSERT_TRUE(Place(&first).ok());
  {
    const int file = open((live_ + "/launcher.vrl").c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(flock(file, LOCK_EX | LOCK_NB), 0);
    EXPECT_NE(Place(&second).message().find("is recording into"), std::string::npos);
    close(file);
  }
  {
    const FinishLock lock = TryFinishLock(live_);
    EXPECT_FALSE(lock.is_busy);
    EXPECT_TRUE(TryFinishLock(live_).is_busy);
    EXPECT_NE(Place(&second).message().find("is being finished"), std::string::npos);
  }
  EXPECT_FALSE(TryFinishLock(live_).is_busy);
  EXPECT_TRUE(first.IsAtItsPath());
  EXPECT_TRUE(Place(&second).ok());
}

TEST_F(LiveDirectoryTest, ADirectoryWithSomethingElseInItIsLeftWhole) {
  util::OwnedDirectory first = Make("first");
  ASSERT_TRUE(Place(&first).ok());
  std::ofstream(live_ + "/notes.txt") << "mine";
  EXPECT_NE(RemoveLiveDirectory(first).message().find("notes.txt"), std::string::npos);
  EXPECT_TRUE(fs::exists(live_ + "/launcher.vrl"));
  fs::remove(live_ + "/notes.txt");
  EXPECT_TRUE(RemoveLiveDirectory(first).ok());
  EXPECT_EQ(Entries(), 0u);
}

TEST_F(LiveDirectoryTest, WhatAKilledProcessRenamedAwayGoesWithTheNext) {
  util::OwnedDirectory killed = Make("killed"), busy = Make("busy"), next = Make("next");
  ASSERT_EQ(killed.MoveAside(), 0);
  ASSERT_EQ(busy.MoveAside(), 0);
  EXPECT_FALSE(IsLiveDirectory(killed.path()));
  ASSERT_EQ(flock(busy.fd(), LOCK_EX | LOCK_NB), 0);  // its process is at work
  ASSERT_TRUE(Place(&next).ok());
  EXPECT_TRUE(RemoveLiveDirectory(next).ok());
  EXPECT_FALSE(fs::exists(killed.path()));
  EXPECT_TRUE(fs::exists(busy.path()));
}

}  // namespace
}  // namespace vramscope::cli
