// SPDX-License-Identifier: Apache-2.0
#include "record/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace vramscope::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxOutputBytes = 1 << 20;
constexpr int kLookEveryMs = 20;
constexpr std::chrono::milliseconds kGraceAfterTerm{2000};

int MillisecondsUntil(Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

bool IsGivenUp(const std::function<bool()>& give_up) {
  return give_up && give_up();
}

// Reads until the child's end of the pipe is closed. False when the time is over.
bool Drain(int fd,
           Clock::time_point deadline,
           const std::function<bool()>& give_up,
           std::string* output) {
  char buffer[4096];
  for (;;) {
    pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
    const int left_ms = MillisecondsUntil(deadline);
    const int ready = poll(&wait, 1, give_up ? std::min(left_ms, kLookEveryMs) : left_ms);
    if ((ready < 0 && errno == EINTR) || (ready == 0 && left_ms > 0 && !IsGivenUp(give_up)))
      continue;
    if (ready <= 0)
      return false;
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return true;
    if (output->size() < kMaxOutputBytes)
      output->append(buffer, static_cast<size_t>(got));
  }
}

Captured Collect(pid_t pid,
                 int fd,
                 std::chrono::milliseconds limit,
                 const std::function<bool()>& give_up) {
  const Clock::time_point deadline = Clock::now() + limit;
  Captured result;
  result.ended = Drain(fd, deadline, give_up, &result.output);
  close(fd);
  // A grandchild may keep the pipe, and a child may close it and stay: the limit holds for both.
  pid_t got = 0;
  while (result.ended && (got = waitpid(pid, &result.wait_status, WNOHANG)) == 0) {
    result.ended = Clock::now() < deadline && !IsGivenUp(give_up);
    usleep(2000);
  }
  // One that is given up for something better may take away what it has begun to write.
  if (got != pid && IsGivenUp(give_up)) {
    kill(pid, SIGTERM);
    const Clock::time_point last = Clock::now() + kGraceAfterTerm;
    while ((got = waitpid(pid, &result.wait_status, WNOHANG)) == 0 && Clock::now() < last)
      usleep(2000);
    result.ended = false;
  }
  if (got != pid) {
    kill(pid, SIGKILL);
    while (waitpid(pid, &result.wait_status, 0) < 0 && errno == EINTR) {
    }
    result.ended = false;
  }
  return result;
}

// In the child `run(output_fd)` must not return.
template <class Run>
Captured Fork(std::chrono::milliseconds limit, const std::function<bool()>& give_up, Run&& run) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return {};
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    run(ends[1]);
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return {};
  }
  return Collect(pid, ends[0], limit, give_up);
}

}  // namespace

Captured RunCaptured(const std::vector<std::string>& command,
                     const Variables& variables,
                     std::chrono::milliseconds limit,
                     const std::function<bool()>& give_up) {
  return Fork(limit, give_up, [&](int output) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    const int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    for (const auto& [name, value] : variables)
      setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> argv;
    argv.reserve(command.size() + 1);
    for (const std::string& word : command)
      argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    _exit(127);
  });
}

Captured ForkCaptured(const std::function<std::string()>& work, std::chrono::milliseconds limit) {
  return Fork(limit, {}, [&](int output) {
    const std::string text = work();
    const ssize_t written = write(output, text.data(), text.size());
    _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  });
}

void SayAtOnce(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace vramscope::cli
