// SPDX-License-Identifier: Apache-2.0
#include "util/proc.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "util/file.h"

namespace vramscope::util {
namespace {

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
