// SPDX-License-Identifier: Apache-2.0
#include "top/attachments.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "pipeline/console.h"

namespace vramscope::cli {

CapturedErrors::CapturedErrors() : old_(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return;
  read_ = util::UniqueFd(ends[0]);
  const util::UniqueFd write(ends[1]);
  dup2(write.get(), STDERR_FILENO);
}

void CapturedErrors::Restore() const {
  if (old_.ok())
    dup2(old_.get(), STDERR_FILENO);
}

void CapturedErrors::Forward() const {
  const std::string text = Take();
  std::fputs(text.c_str(), stderr);
}

std::string CapturedErrors::Take() const {
  char text[4096];
  const ssize_t count = read(read_.get(), text, sizeof text);
  return std::string(text, count > 0 ? static_cast<size_t>(count) : 0);
}

std::string Attachments::Toggle(uint32_t pid) {
  Reap();
  if (const auto running = children_.find(pid); running != children_.end()) {
    kill(running->second, SIGINT);
    return fmt::format("ending the recording of process {}", pid);
  }
  const std::string number = std::to_string(pid);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0)
    return "no process can be started for `vramscope attach`: " + util::ErrnoText(errno);
  if (child == 0) {
    // A process group of its own: Ctrl-C and Ctrl-Z are for the screen.
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGINT);
    // It must detach even if its messages are not read.
    signal(SIGPIPE, SIG_IGN);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    if (getppid() == parent)
      execl("/proc/self/exe", "vramscope", "attach", number.c_str(), "--no-report", nullptr);
    _exit(kExitError);
  }
  children_[pid] = child;
  return fmt::format("attaching to process {}", pid);
}

void Attachments::Reap() {
  std::erase_if(children_,
                [](const auto& child) { return waitpid(child.second, nullptr, WNOHANG) != 0; });
}

void Attachments::EndAll(const CapturedErrors& messages) {
  constexpr int kLookMs = 50;
  for (const auto& [pid, child] : children_)
    kill(child, SIGINT);
  for (Reap(); !children_.empty(); Reap()) {
    pollfd message = {messages.fd(), POLLIN, 0};
    if (poll(&message, 1, kLookMs) > 0)
      messages.Forward();
  }
  messages.Forward();
}

}  // namespace vramscope::cli
