// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "base/clock.h"
#include "record/watch/watches.h"

namespace vramscope::cli {
namespace {

pid_t StartSleeper() {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  return child;
}

int OpenPidfds() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string link = std::filesystem::read_symlink(entry.path(), gone).string();
    count += link.find("pidfd") != std::string::npos ? 1 : 0;
  }
  return count;
}

TEST(ExitWatchTest, SeesTheEndOfARecordedProcessAndNoOther) {
  const std::string folder = testing::TempDir() + "exit_watch." + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  const pid_t recorded = StartSleeper(), command = StartSleeper(), unrecorded = StartSleeper();
  std::ofstream(folder + "/" + std::to_string(recorded) + ".1.vrl");
  std::ofstream(folder + "/" + std::to_string(command) + ".1.vrl");
  std::ofstream(folder + "/launcher.vrl");
  ExitWatch watch(folder, command);
  if (!watch.Start())
    GTEST_SKIP() << "this kernel has no pidfd_open";
  for (int i = 0; i < 10'000 && OpenPidfds() == 0; ++i)
    usleep(1000);
  const int64_t before_ns = base::MonotonicNs();
  for (const pid_t pid : {unrecorded, command, recorded})
    kill(pid, SIGKILL);
  for (const pid_t pid : {unrecorded, command, recorded})
    waitpid(pid, nullptr, 0);
  watch.Stop();
  ASSERT_EQ(watch.seen().size(), 1u);
  EXPECT_EQ(watch.seen()[0].pid, recorded);
  EXPECT_GE(watch.seen()[0].time_ns, before_ns);
  EXPECT_LE(watch.seen()[0].time_ns, base::MonotonicNs());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace vramscope::cli
