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

StopSignals::StopSignals() {
  sigemptyset(&stops_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
    sigaddset(&stops_, number);
  sigprocmask(SIG_BLOCK, &stops_, &old_mask_);
  fd_ = util::UniqueFd(signalfd(-1, &stops_, SFD_CLOEXEC | SFD_NONBLOCK));
}

StopSignals::~StopSignals() {
  timespec at_once{};
  while (sigtimedwait(&stops_, nullptr, &at_once) > 0) {
  }
  sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

bool StopSignals::Take() const {
  signalfd_siginfo taken{};
  return read(fd_.get(), &taken, sizeof taken) > 0;
}

util::Result<std::unique_ptr<Onlooker>> Onlooker::Open(pid_t pid) {
  // A number can be used again, this cannot.
  util::UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process.ok()) {
    return util::Status::Error(errno == ESRCH || errno == EINVAL
                                   ? fmt::format("{}: the process does not exist", pid)
                                   : fmt::format("{}: {}", pid, util::ErrnoText(errno)));
  }
  return std::unique_ptr<Onlooker>(new Onlooker(std::move(process)));
}

Onlooker::Seen Onlooker::Wait(std::optional<std::chrono::nanoseconds> limit) const {
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  timespec time{};
  if (limit) {
    time.tv_sec = limit->count() / kNsPerSecond;
    time.tv_nsec = limit->count() % kNsPerSecond;
  }
  pollfd events[] = {{process_.get(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
  while (ppoll(events, 2, limit ? &time : nullptr, nullptr) < 0 && errno == EINTR) {
  }
  if (events[0].revents != 0)
    return Seen::kEnd;
  return events[1].revents != 0 && signals_.Take() ? Seen::kSignal : Seen::kNothing;
}

}  // namespace vramscope::cli
