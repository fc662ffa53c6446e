// SPDX-License-Identifier: Apache-2.0

#include "record/child_process.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "util/file.h"

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
  // A command that is given up may remove what it has begun to write.
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

constexpr int kExitNotStarted = 125;
constexpr char kGo = '+';  // what the child is sent first, before variables if any
constexpr std::array kForwarded = {SIGINT,  SIGTERM,  SIGHUP,  SIGQUIT, SIGUSR1,
                                   SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};

ssize_t ReadAll(int fd, void* data, size_t size_bytes) {
  ssize_t got = 0;
  do {
    got = read(fd, data, size_bytes);
  } while (got < 0 && errno == EINTR);
  return got;
}

bool WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return false;
    done += static_cast<size_t>(written);
  }
  return true;
}

// Such a file is a program for another machine, and no script without `#!`.
bool IsElf(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char start[SELFMAG] = {};
  const bool is_elf = fd >= 0 && read(fd, start, sizeof start) == sizeof start &&
                      std::memcmp(start, ELFMAG, SELFMAG) == 0;
  if (fd >= 0)
    close(fd);
  return is_elf;
}

bool IsStopped(pid_t pid) {
  const std::optional<std::string> text = util::ReadProc(pid, "stat");
  // "PID (NAME) STATE ...", and NAME may hold anything.
  const size_t end = text ? text->rfind(')') : std::string::npos;
  return end != std::string::npos && text->compare(end, 3, ") T") == 0;
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

util::Result<std::unique_ptr<ChildProcess>> ChildProcess::Fork(
    const std::string& path,
    const std::vector<std::string>& command,
    int own_signal) {
  int start_pipe[2];
  int result_pipe[2];
  if (pipe2(start_pipe, O_CLOEXEC) != 0) {
    return util::Status::Error("cannot start the command: " + util::ErrnoText(errno));
  }
  if (pipe2(result_pipe, O_CLOEXEC) != 0) {
    const int error = errno;
    close(start_pipe[0]);
    close(start_pipe[1]);
    return util::Status::Error("cannot start the command: " + util::ErrnoText(error));
  }
  std::unique_ptr<ChildProcess> child(new ChildProcess);
  sigemptyset(&child->forwarded_);
  for (const int signal_number : kForwarded)
    sigaddset(&child->forwarded_, signal_number);
  sigaddset(&child->forwarded_, SIGCHLD);
  child->own_signal_ = own_signal;
  if (own_signal != 0)
    sigaddset(&child->forwarded_, own_signal);
  // Blocked in both from before the fork, so that no signal falls between the two.
  sigprocmask(SIG_BLOCK, &child->forwarded_, &child->old_mask_);
  std::fflush(nullptr);
  child->pid_ = fork();
  if (child->pid_ == 0) {
    close(start_pipe[1]);
    close(result_pipe[0]);
    child->start_pipe_ = start_pipe[0];
    child->result_pipe_ = result_pipe[1];
    child->RunChild(path, command);
  }
  const int error = errno;
  close(start_pipe[0]);
  close(result_pipe[1]);
  child->start_pipe_ = start_pipe[1];
  child->result_pipe_ = result_pipe[0];
  if (child->pid_ < 0) {
    child->reaped_ = true;
    sigprocmask(SIG_SETMASK, &child->old_mask_, nullptr);
    return util::Status::Error("cannot start the command: " + util::ErrnoText(error));
  }
  // Only from here on, because a child inherits dispositions. With SIGCHLD ignored the kernel would
  // reap the child itself; our own writes must come back as errors.
  signal(SIGCHLD, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  return child;
}

ChildProcess::~ChildProcess() {
  if (start_pipe_ >= 0)
    close(start_pipe_);
  if (result_pipe_ >= 0)
    close(result_pipe_);
  if (!reaped_) {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
}

void ChildProcess::RunChild(const std::string& path, const std::vector<std::string>& command) {
  std::string variables;
  char buffer[4096];
  for (ssize_t got; (got = ReadAll(start_pipe_, buffer, sizeof buffer)) > 0;) {
    variables.append(buffer, static_cast<size_t>(got));
  }
  if (variables.empty())
    _exit(kExitNotStarted);
  for (size_t at = 1; at < variables.size();) {
    const char* const name = variables.c_str() + at;
    const char* const value = name + std::strlen(name) + 1;
    setenv(name, value, 1);
    at += std::strlen(name) + std::strlen(value) + 2;
  }
  std::vector<char*> argv;
  argv.reserve(command.size() + 2);
  for (const std::string& word : command)
    argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  execv(path.c_str(), argv.data());
  int error = errno;
  if (error == ENOEXEC && !IsElf(path)) {
    // A script without `#!`, as execvp(3) and every shell take it.
    std::string shell = "/bin/sh";
    std::string script = path;
    argv[0] = script.data();
    argv.insert(argv.begin(), shell.data());
    execv(shell.c_str(), argv.data());
    error = errno;
  }
  (void)!write(result_pipe_, &error, sizeof error);
  _exit(kExitNotStarted);
}

int ChildProcess::Start(const Variables& variables) {
  std::string text(1, kGo);
  for (const auto& [name, value] : variables) {
    text += name;
    text += '\0';
    text += value;
    text += '\0';
  }
  if (!WriteAll(start_pipe_, text))
    return errno;
  close(start_pipe_);
  start_pipe_ = -1;
  int error = 0;
  const ssize_t got = ReadAll(result_pipe_, &error, sizeof error);
  return got == sizeof error ? error : 0;
}

bool ChildProcess::Reap(int* status) {
  for (;;) {
    const pid_t got = waitpid(pid_, status, WNOHANG);
    if (got < 0 && errno == EINTR)
      continue;
    if (got == pid_)
      reaped_ = true;
    return got == pid_;
  }
}

void ChildProcess::Forward(const siginfo_t& info) {
  const int signal_number = info.si_signo;
  // The terminal sends its signals to the whole foreground process group: the child has had it,
  // unless it has left the group.
  if (info.si_code == SI_KERNEL && getpgid(pid_) == getpgrp())
    return;
  // A signal that the child itself sends to its group (a program that suspends itself) has reached
  // it already.
  if (info.si_code <= 0 && info.si_pid == pid_)
    return;
  // A shell's `fg` continues the whole group as well.
  if (signal_number == SIGCONT && !IsStopped(pid_))
    return;
  kill(pid_, signal_number);
}

int ChildProcess::Wait(const std::function<void()>& on_own_signal) {
  int status = 0;
  while (!Reap(&status)) {
    siginfo_t info{};
    const int signal_number = sigwaitinfo(&forwarded_, &info);
    if (signal_number <= 0 || signal_number == SIGCHLD)
      continue;
    if (signal_number == own_signal_) {
      on_own_signal();
      continue;
    }
    Forward(info);
    if (signal_number == SIGTSTP) {
      // Stop as the shell expects of us. Not SIGSTOP: where no shell could continue us
      // (an orphaned process group) the kernel ignores SIGTSTP, and rightly.
      sigset_t stop;
      sigemptyset(&stop);
      sigaddset(&stop, SIGTSTP);
      raise(SIGTSTP);
      sigprocmask(SIG_UNBLOCK, &stop, nullptr);
      sigprocmask(SIG_BLOCK, &stop, nullptr);
    }
  }
  return status;
}

void ChildProcess::ReleaseSignals() {
  const timespec at_once{};
  while (sigtimedwait(&forwarded_, nullptr, &at_once) > 0) {
  }
  sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

int ExitStatusOf(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

}  // namespace vramscope::cli
