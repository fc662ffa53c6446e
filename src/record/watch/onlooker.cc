// SPDX-License-Identifier: Apache-2.0
#include "record/watch/onlooker.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace vramscope::cli {

util::Result<std::unique_ptr<Onlooker>> Onlooker::Open(pid_t pid) {
  std::unique_ptr<Onlooker> self(new Onlooker);
  // A number can be used again, this cannot.
  self->process_ = util::UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (self->process_.get() < 0) {
    return util::Status::Error(errno == ESRCH || errno == EINVAL
                                   ? fmt::format("{}: the process does not exist", pid)
                                   : fmt::format("{}: {}", pid, util::ErrnoText(errno)));
  }
  sigemptyset(&self->stops_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
    sigaddset(&self->stops_, number);
  sigprocmask(SIG_BLOCK, &self->stops_, &self->old_mask_);
  self->signals_ = util::UniqueFd(signalfd(-1, &self->stops_, SFD_CLOEXEC | SFD_NONBLOCK));
  return self;
}

Onlooker::~Onlooker() {
  timespec at_once{};
  while (sigtimedwait(&stops_, nullptr, &at_once) > 0) {
  }
  sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

Onlooker::Seen Onlooker::Wait(std::optional<std::chrono::nanoseconds> limit) const {
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  timespec time{};
  if (limit) {
    time.tv_sec = limit->count() / kNsPerSecond;
    time.tv_nsec = limit->count() % kNsPerSecond;
  }
  pollfd events[] = {{process_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
  while (ppoll(events, 2, limit ? &time : nullptr, nullptr) < 0 && errno == EINTR) {
  }
  if (events[0].revents != 0)
    return Seen::kEnd;
  signalfd_siginfo taken{};
  if (events[1].revents == 0 || read(signals_.get(), &taken, sizeof taken) <= 0)
    return Seen::kNothing;
  return Seen::kSignal;
}

}  // namespace vramscope::cli
