// SPDX-License-Identifier: Apache-2.0

#include "util/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

// A process that has ended and was reaped.
pid_t EndedProcess() {
  const pid_t pid = fork();
  if (pid == 0)
    _exit(0);
  waitpid(pid, nullptr, 0);
  return pid;
}

TEST(Proc, ReadsAProcess) {
  const auto text = ReadProc(getpid(), "status");
  ASSERT_TRUE(text.has_value());
  EXPECT_NE(text->find("\nUid:"), std::string::npos);
  EXPECT_EQ(ProcCommand(getpid()), "util_test");
  EXPECT_NE(ReadProcLink(getpid(), "exe").find("util_test"), std::string::npos);
  const auto tasks = ListProc(getpid(), "task");
  EXPECT_NE(std::find(tasks.begin(), tasks.end(), std::to_string(getpid())), tasks.end());
}

TEST(Proc, AProcessThatIsNotThereIsNothing) {
  const pid_t pid = EndedProcess();
  int error = 0;
  EXPECT_FALSE(ReadProc(pid, "status", &error).has_value());
  EXPECT_EQ(error, ENOENT);
  EXPECT_TRUE(ListProc(pid, "task").empty());
  EXPECT_EQ(ReadProcLink(pid, "exe"), "");
  EXPECT_EQ(ProcCommand(pid), "");
}

// What a stream of the C++ library answers with an exception.
TEST(Proc, AProcessThatEndsBetweenOpeningAndReadingIsNothing) {
  for (const char* name : {"status", "stat", "maps", "environ", "comm"}) {
    int go[2];
    ASSERT_EQ(pipe(go), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      char byte = 0;
      close(go[1]);
      (void)!read(go[0], &byte, 1);
      _exit(0);
    }
    const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
    const UniqueFd fd(open(path.c_str(), O_RDONLY));
    ASSERT_TRUE(fd.ok()) << path;
    close(go[0]);
    close(go[1]);
    waitpid(pid, nullptr, 0);
    const auto text = ReadToEnd(fd.get(), 1 << 20);
    EXPECT_TRUE(!text || text->empty()) << name << ": " << *text;
  }
}

TEST(Proc, MoreThanTheLimitIsNothing) {
  const UniqueFd fd(open("/proc/self/maps", O_RDONLY));
  EXPECT_FALSE(ReadToEnd(fd.get(), 10).has_value());
  EXPECT_EQ(errno, EFBIG);
}

}  // namespace

}  // namespace vramscope::util
