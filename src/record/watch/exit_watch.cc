// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <system_error>

#include "base/clock.h"
#include "record/watch/watches.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kPeriodMs = 100;
// The user needs descriptors too: at most this many processes are watched at once.
constexpr size_t kMaxWatched = 256;

int OpenProcess(pid_t pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

}  // namespace

bool ExitWatch::Start() {
  const int self = OpenProcess(getpid());
  if (self < 0)
    return false;
  close(self);
  wake_ = eventfd(0, EFD_CLOEXEC);
  if (wake_ < 0)
    return false;
  Watch::Start();
  if (!worker_.IsStarted())
    close(wake_);
  return worker_.IsStarted();
}

void ExitWatch::Stop() {
  if (!worker_.IsStarted())
    return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
  Watch::Stop();
  for (const auto& [pid, descriptor] : descriptors_) {
    if (descriptor >= 0)
      close(descriptor);
  }
  close(wake_);
}

// A live file is called PID.TIME.vrl.
void ExitWatch::OpenNewProcesses() {
  size_t watched = 0;
  for (const auto& [pid, descriptor] : descriptors_)
    watched += descriptor >= 0 ? 1u : 0u;
  std::error_code error;
  for (fs::directory_iterator it(live_directory_, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    pid_t pid = 0;
    const auto [next, failed] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failed != std::errc() || *next != '.' || pid == command_ || watched >= kMaxWatched)
      continue;
    const auto [known, is_new] = descriptors_.try_emplace(pid, -1);
    if (is_new) {
      known->second = OpenProcess(pid);
      watched += known->second >= 0 ? 1u : 0u;
    }
  }
}

bool ExitWatch::Look() {
  OpenNewProcesses();
  std::vector<pollfd> waiting = {{.fd = wake_, .events = POLLIN, .revents = 0}};
  std::vector<pid_t> pids = {0};
  for (const auto& [pid, descriptor] : descriptors_) {
    if (descriptor < 0)
      continue;
    waiting.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
    pids.push_back(pid);
  }
  if (poll(waiting.data(), waiting.size(), kPeriodMs) < 0)
    return true;  // interrupted
  const int64_t now_ns = base::MonotonicNs();
  for (size_t i = 1; i < waiting.size(); ++i) {
    if (waiting[i].revents == 0)
      continue;
    seen_.push_back({pids[i], now_ns});
    close(waiting[i].fd);
    descriptors_[pids[i]] = -1;
  }
  return waiting[0].revents == 0;
}

}  // namespace vramscope::cli
