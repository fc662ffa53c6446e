// SPDX-License-Identifier: Apache-2.0
#include "util/owned_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace vramscope::util {
namespace {

namespace fs = std::filesystem;

constexpr Content kOurs = {"ours", [](std::span<const uint8_t> start, uint64_t) {
                             return start.size() >= 4 && std::memcmp(start.data(), "ours", 4) == 0;
                           }};

class OwnedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    umask(0);
    directory_ =
        fs::temp_directory_path() / ("vramscope_owned_file_test_" + std::to_string(getpid()));
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string Path(const char* name) const { return directory_ / name; }
  void Put(const char* name, const char* text) const { std::ofstream(Path(name)) << text; }
  std::string Get(const char* name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  mode_t Mode(const std::string& path) const {
    struct stat info {};
    return lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
  }
  size_t Count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(directory_), {}));
  }
  // What no write may go through or over; each has the name that it is for.
  void PutObstacles() const {
    Put("victim", "ours: precious");
    fs::create_symlink(Path("victim"), Path("link"));
    fs::create_symlink(Path("nothing"), Path("dangling"));
    fs::create_hard_link(Path("victim"), Path("hard"));
    ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
    fs::create_directory(Path("directory"));
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, Path("socket").c_str(), sizeof address.sun_path - 1);
    ASSERT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    close(socket);
  }
  static constexpr const char* kObstacles[] = {"link", "dangling",  "hard",
                                               "fifo", "directory", "socket"};

  fs::path directory_;
};

TEST_F(OwnedFileTest, AFileAppearsOnlyWhenItIsWhole) {
  {
    auto file = AtomicFile::Create(Path("a"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Write("hello").ok());
    EXPECT_FALSE(fs::exists(Path("a")));
    EXPECT_EQ(file->offset(), 5u);
    ASSERT_TRUE(file->Commit().ok());
  }
  EXPECT_EQ(Get("a"), "hello");
  {
    auto file = AtomicFile::Create(Path("a"));
    ASSERT_TRUE(file->Write("other").ok());
  }
  EXPECT_EQ(Get("a"), "hello");
  EXPECT_EQ(Count(), 1u) << "a temporary file was left";
}

TEST_F(OwnedFileTest, AFileTakesThePlaceOfTheOneThatStoodThere) {
  Put("a", "old");
  auto file = AtomicFile::Create(Path("a"));
  ASSERT_TRUE(file->Write("new").ok());
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(Get("a"), "new");
  EXPECT_EQ(Count(), 1u);
}

TEST_F(OwnedFileTest, WhatIsMadeIsForThisUserAlone) {
  umask(0);
  auto file = AtomicFile::Create(Path("a"));
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(Mode(Path("a")), 0600u);
  auto directory = OwnedDirectory::Create(Path("d"));
  ASSERT_TRUE(directory.ok());
  EXPECT_EQ(Mode(Path("d")), 0700u);
  EXPECT_TRUE(directory->IsPrivate());
  umask(0777);
  EXPECT_TRUE(CreateFile(Path("b")).ok());
  EXPECT_EQ(Mode(Path("b")), 0600u);
  EXPECT_TRUE(directory->CreateFile("c").ok());
  EXPECT_EQ(Mode(Path("d/c")), 0600u);
  EXPECT_TRUE(OwnedDirectory::Create(Path("e")).ok());
  EXPECT_EQ(Mode(Path("e")), 0700u);
}

TEST_F(OwnedFileTest, AnOutputReplacesNothingButAFileOfOurs) {
  PutObstacles();
  for (const char* name : kObstacles) {
    const auto file = AtomicFile::Create(Path(name));
    EXPECT_FALSE(file.ok()) << name;
    EXPECT_NE(WhyNotReplaceable(Path(name), nullptr), "") << name;
    EXPECT_FALSE(CreateFile(Path(name)).ok()) << name;
    EXPECT_FALSE(FindFile(Path(name), kOurs)) << name;
  }
  EXPECT_EQ(Get("victim"), "ours: precious");
  EXPECT_FALSE(fs::exists(Path("nothing")));
  EXPECT_EQ(WhyNotReplaceable(Path("link"), nullptr), "is a symbolic link");
  EXPECT_EQ(WhyNotReplaceable(Path("hard"), nullptr), "has several links");
  EXPECT_EQ(WhyNotReplaceable(Path("fifo"), nullptr), "is not a regular file");
  EXPECT_EQ(WhyNotReplaceable(Path("absent"), nullptr), "");
}

TEST_F(OwnedFileTest, ContentDecidesWhereItIsAskedFor) {
  Put("notes", "something else");
  EXPECT_EQ(WhyNotReplaceable(Path("notes"), &kOurs), "is not ours");
  EXPECT_EQ(WhyNotReplaceable(Path("notes"), nullptr), "");
  EXPECT_FALSE(AtomicFile::Create(Path("notes"), &kOurs).ok());
  EXPECT_FALSE(FindFile(Path("notes"), kOurs));
  EXPECT_EQ(Get("notes"), "something else");
  Put("recording", "ours, an old one");
  const auto recording = FindFile(Path("recording"), kOurs);
  ASSERT_TRUE(recording);
  EXPECT_FALSE(RemoveFile(Path("notes"), *recording));
  EXPECT_TRUE(RemoveFile(Path("recording"), *recording));
  EXPECT_FALSE(RemoveFile(Path("recording"), *recording));
  EXPECT_EQ(Count(), 1u);
}

TEST_F(OwnedFileTest, AFileThatAppearsMeanwhileIsLeft) {
  auto file = AtomicFile::Create(Path("a"), &kOurs);
  ASSERT_TRUE(file->Write("ours").ok());
  Put("a", "theirs");
  const Status status = file->Commit();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("another program created it meanwhile"), std::string::npos);
  EXPECT_EQ(Get("a"), "theirs");

  Put("b", "ours: old");
  auto second = AtomicFile::Create(Path("b"), &kOurs);
  fs::rename(Path("b"), Path("moved"));
  Put("b", "theirs");
  EXPECT_FALSE(second->Commit().ok());
  EXPECT_EQ(Get("b"), "theirs");
  EXPECT_EQ(Get("moved"), "ours: old");
}

TEST_F(OwnedFileTest, AFileThatWasRemovedMeanwhileIsNotMissed) {
  Put("a", "ours");
  auto file = AtomicFile::Create(Path("a"), &kOurs);
  fs::remove(Path("a"));
  ASSERT_TRUE(file->Write("new").ok());
  EXPECT_TRUE(file->Commit().ok());
  EXPECT_EQ(Get("a"), "new");
}

TEST_F(OwnedFileTest, UnfinishedFilesCanBeDiscardedAtOnce) {
  auto one = AtomicFile::Create(Path("one"));
  auto two = AtomicFile::Create(Path("two"));
  ASSERT_TRUE(two->Commit().ok());
  AtomicFile::DiscardAll();
  EXPECT_EQ(Count(), 1u);
  EXPECT_TRUE(fs::exists(Path("two")));
}

TEST_F(OwnedFileTest, ADirectoryOpensOnlyItsOwnFiles) {
  PutObstacles();
  auto directory = OwnedDirectory::Open(directory_);
  ASSERT_TRUE(directory.ok());
  for (const char* name : kObstacles) {
    EXPECT_FALSE(directory->Open(name, nullptr).ok()) << name;
    EXPECT_FALSE(directory->Open(name, &kOurs).ok()) << name;
    EXPECT_FALSE(directory->CreateFile(name).ok()) << name;
  }
  fs::remove(Path("hard"));
  constexpr uint64_t kLargeBytes = uint64_t{64} << 10;
  fs::resize_file(Path("victim"), kLargeBytes);
  std::ofstream(Path("victim"), std::ios::binary | std::ios::app) << "more";
  auto file = directory->Open("victim", &kOurs);
  ASSERT_TRUE(file.ok());
  GiveSpaceBack(*file);
  // It stays recognisable, and the rest is gone.
  EXPECT_EQ(Get("victim").substr(0, 14), "ours: precious");
  EXPECT_EQ(Get("victim").substr(kLargeBytes), std::string(4, '\0'));
  EXPECT_TRUE(directory->Remove("victim", *file));
  EXPECT_FALSE(fs::exists(Path("victim")));
  EXPECT_FALSE(directory->RemoveLink("fifo"));
  EXPECT_TRUE(directory->RemoveLink("link"));
}

TEST_F(OwnedFileTest, ADirectoryRemovesOnlyTheFileThatItLookedAt) {
  Put("a", "ours");
  auto directory = OwnedDirectory::Open(directory_);
  auto file = directory->Open("a", &kOurs);
  ASSERT_TRUE(file.ok());
  fs::remove(Path("a"));
  Put("a", "ours, but another");
  EXPECT_FALSE(directory->Remove("a", *file));
  EXPECT_EQ(Get("a"), "ours, but another");
}

TEST_F(OwnedFileTest, ADirectoryIsNoLinkAndNotAnothers) {
  fs::create_directory(Path("d"));
  fs::create_directory_symlink(Path("d"), Path("l"));
  EXPECT_FALSE(OwnedDirectory::Open(Path("l")).ok());
  EXPECT_FALSE(OwnedDirectory::Create(Path("l")).ok());
  EXPECT_FALSE(OwnedDirectory::Create(Path("d")).ok());
  auto directory = OwnedDirectory::Open(Path("d"));
  ASSERT_TRUE(directory.ok());
  fs::rename(Path("d"), Path("moved"));
  fs::create_directory(Path("d"));
  EXPECT_FALSE(directory->IsAtItsPath());
  EXPECT_FALSE(directory->RemoveSelf().ok());
  EXPECT_TRUE(fs::exists(Path("d")));
  if (geteuid() == 0) {
    ASSERT_EQ(chown(Path("moved").c_str(), 65534, 65534), 0);
    EXPECT_FALSE(OwnedDirectory::Open(Path("moved")).ok());
    Put("a", "ours");
    ASSERT_EQ(chown(Path("a").c_str(), 65534, 65534), 0);
    EXPECT_EQ(WhyNotReplaceable(Path("a"), nullptr), "belongs to another user");
  }
}

// A child that begins files and drops them all the time, and is interrupted wherever it is then.
TEST_F(OwnedFileTest, ADirectoryIsRenamedWhereNothingStands) {
  auto first = OwnedDirectory::CreateBeside(Path("x"));
  ASSERT_TRUE(first.ok()) << first.status().message();
  ASSERT_TRUE(first->CreateFile("file").ok());
  EXPECT_EQ(first->MoveTo(Path("x")), 0);
  EXPECT_EQ(first->path(), Path("x"));
  EXPECT_TRUE(fs::exists(Path("x") + "/file"));

  auto second = OwnedDirectory::CreateBeside(Path("x"));
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->MoveTo(Path("x")), EEXIST);
  EXPECT_TRUE(second->IsAtItsPath());

  // One that another took the place of is left.
  fs::rename(Path("x"), Path("y"));
  EXPECT_EQ(second->MoveTo(Path("x")), 0);
  EXPECT_EQ(first->MoveAside(), ENOENT);
  EXPECT_TRUE(fs::is_directory(Path("x")));

  EXPECT_EQ(second->MoveAside(), 0);
  EXPECT_TRUE(OwnedDirectory::IsAsideName(fs::path(second->path()).filename().string()));
  EXPECT_FALSE(AtomicFile::IsTemporaryName(fs::path(second->path()).filename().string()));
  EXPECT_FALSE(fs::exists(Path("x")));
}

TEST_F(OwnedFileTest, ASignalAtAnyMomentLeavesNothing) {
  // Before there is a child: it may be interrupted at its first instruction, and the signal be one
  // that this program was started to ignore.
  const auto before = signal(SIGINT, [](int) {
    AtomicFile::DiscardAll();
    _exit(0);
  });
  for (useconds_t round = 0; round < 100; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (;;)
        (void)AtomicFile::Create(Path("a"));
    }
    usleep(1000 + round * 7);
    ASSERT_EQ(kill(child, SIGINT), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(Count(), 0U) << "round " << round;
  }
  signal(SIGINT, before);
}

}  // namespace
}  // namespace vramscope::util
