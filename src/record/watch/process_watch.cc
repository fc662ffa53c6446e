// SPDX-License-Identifier: Apache-2.0

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <optional>
#include <set>

#include "pipeline/live_directory.h"
#include "pipeline/survivors.h"
#include "record/environment.h"
#include "record/watch/watches.h"
#include "util/file.h"

namespace vramscope::cli {
namespace {

// The line's words behind "KEY:", or "".
std::string_view LineOf(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos)
    return "";
  text.remove_prefix(at + key.size());
  return text.substr(0, text.find('\n'));
}

// Whether `directory` has another meaning in the process than here: chroot, a mount namespace.
bool IsElsewhere(pid_t pid, const std::string& directory, const struct stat& here) {
  const int root =
      open(fmt::format("/proc/{}/root", pid).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0)
    return false;
  struct stat there {};
  // A symbolic link there continues from our own root, so it leads to another file too.
  const bool is_found = fstatat(root, directory.c_str() + 1, &there, 0) == 0;
  close(root);
  return !is_found || there.st_dev != here.st_dev || there.st_ino != here.st_ino;
}

constexpr std::chrono::milliseconds kPeriod{250};
// Between fork and exec, and while the loader works, a process looks like one without the probe.
constexpr int kLooksToBelieve = 2;
constexpr size_t kMaxFound = 10'000;

// Why the process is not recorded, "" if it is, nothing if that cannot be said now.
std::optional<std::string> WhyUnrecorded(pid_t pid,
                                         const std::string& live_directory,
                                         const std::vector<std::string>& sessions) {
  int error = 0;
  const std::optional<std::string> environment = util::ReadProc(pid, "environ", &error);
  if (!environment) {
    if (error != EACCES && error != EPERM)
      return std::nullopt;
    return "belongs to another user or is a setuid program";
  }
  const Enrolment enrolment = EnrolmentOf(*environment, live_directory, sessions);
  if (enrolment == Enrolment::kElsewhere || IsThisProgram(pid))
    return "";
  std::string why = WhyNotRecordable(fmt::format("/proc/{}/exe", pid));
  bool has_probe = enrolment == Enrolment::kHere && why.empty();
  if (!has_probe) {
    // The mapped files decide. Programs that change their title write over their environment, and
    // valgrind is a static program that loads others.
    const std::optional<std::string> maps = util::ReadProc(pid, "maps");
    if (!maps || maps->empty())
      return std::nullopt;
    has_probe = HasProbe(*maps);
  }
  if (has_probe)
    return WhyOutOfReach(pid, live_directory);
  return !why.empty() ? why : "was started without the probe's environment";
}

}  // namespace

bool ParseFileUser(std::string_view status, FileUser* user) {
  // "Uid:\tREAL\tEFFECTIVE\tSAVED\tFILE SYSTEM"
  const std::string_view users = LineOf(status, "\nUid:");
  const std::string_view last = users.substr(users.rfind('\t') + 1);
  const char* const end = last.data() + last.size();
  if (last.empty() || std::from_chars(last.data(), end, user->user).ptr != end)
    return false;
  constexpr uint64_t kDacOverride = 1 << 1;
  const std::string_view words = LineOf(status, "\nCapEff:\t");
  uint64_t capabilities = 0;
  std::from_chars(words.data(), words.data() + words.size(), capabilities, 16);
  user->may_write_all = (capabilities & kDacOverride) != 0;
  return true;
}

std::string WhyOutOfReach(pid_t pid, const std::string& directory) {
  struct stat here {};
  if (directory.empty() || directory.front() != '/' || stat(directory.c_str(), &here) != 0)
    return "";
  const std::optional<std::string> status = util::ReadProc(pid, "status");
  FileUser user;
  if (!status || !ParseFileUser(*status, &user))
    return "";
  // The user of the recording made the directory, whatever owner the file system shows.
  constexpr mode_t kOthersMayWrite = S_IWGRP | S_IWOTH;
  if (user.user != geteuid() && user.user != here.st_uid && !user.may_write_all &&
      (here.st_mode & kOthersMayWrite) == 0) {
    return "runs as a user who cannot write the recording";
  }
  if (IsElsewhere(pid, directory, here))
    return "has another file system, without the recording";
  return "";
}

ProcessWatch::ProcessWatch(pid_t root, bool root_is_recorded, std::string live_directory)
    : Watch(std::move(live_directory)),
      root_(root),
      root_is_recorded_(root_is_recorded),
      sessions_(SessionsOf(live_directory_)),
      pace_(kPeriod) {}

void ProcessWatch::SawOnGpu(size_t gpu, std::vector<pid_t> pids) {
  const std::lock_guard<std::mutex> lock(mutex_);
  on_gpu_[gpu] = std::move(pids);
}

std::vector<UnrecordedProcess> ProcessWatch::Found() const {
  std::vector<UnrecordedProcess> found;
  for (const auto& [key, process] : found_)
    found.push_back(process);
  return found;
}

bool ProcessWatch::Look() {
  pace_.Begin();
  std::set<pid_t> on_gpu;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [gpu, pids] : on_gpu_)
      on_gpu.insert(pids.begin(), pids.end());
    on_gpu_.clear();
  }
  former_suspects_.swap(suspects_);
  suspects_.clear();
  for (const pid_t pid : on_gpu) {
    if (IsBelow(pid, root_))
      Examine(pid, true);
  }
  for (const pid_t pid : ProcessesFrom(root_))
    Examine(pid, false);
  pace_.End();
  return true;
}

void ProcessWatch::Examine(pid_t pid, bool uses_gpu) {
  ProcessStat stat;
  if (pid == root_ && !root_is_recorded_)
    return;
  if (!ReadProcessStat(pid, &stat) || stat.state == 'Z' || stat.state == 'X')
    return;
  const Key key{pid, stat.start_ticks};
  const std::optional<std::string> reason = WhyUnrecorded(pid, live_directory_, sessions_);
  if (const auto known = found_.find(key); known != found_.end()) {
    known->second.uses_gpu |= uses_gpu;
    if (reason && reason->empty())
      found_.erase(known);  // slow to load the probe
    return;
  }
  if (!reason || reason->empty())
    return;
  const auto former = former_suspects_.find(key);
  const int looks = 1 + (former != former_suspects_.end() ? former->second : 0);
  if (!uses_gpu && looks < kLooksToBelieve) {
    suspects_[key] = looks;
    return;
  }
  if (found_.size() < kMaxFound)
    found_[key] = {
        .pid = pid, .name = util::ProcCommand(pid), .reason = *reason, .uses_gpu = uses_gpu};
}

}  // namespace vramscope::cli
