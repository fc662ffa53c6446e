// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/target.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string_view>

#include "pipeline/session.h"
#include "pipeline/survivors.h"
#include "util/file.h"
#include "util/proc.h"

namespace vramscope::cli {
namespace {

constexpr std::string_view kLiveExtension = ".vrl";

std::optional<ProcessStat> StatOf(pid_t pid) {
  const std::optional<std::string> text = util::ReadProc(pid, "stat");
  ProcessStat stat;
  if (!text || !ParseProcessStat(*text, &stat))
    return std::nullopt;
  return stat;
}

bool HasEnded(const ProcessStat& stat) {
  return stat.state == 'Z' || stat.state == 'X';
}

bool IsAncestor(pid_t pid) {
  for (pid_t at = getpid(); at > 1;) {
    if (at == pid)
      return true;
    const std::optional<ProcessStat> stat = StatOf(at);
    if (!stat)
      return false;
    at = stat->parent;
  }
  return false;
}

}  // namespace

std::string LiveDirectoryOfMaps(const std::string& maps) {
  for (size_t begin = 0; begin < maps.size();) {
    const size_t end = std::min(maps.find('\n', begin), maps.size());
    const std::string_view line(maps.data() + begin, end - begin);
    begin = end + 1;
    const size_t path = line.find('/');
    // One that was finished ends in " (deleted)".
    if (path == line.npos || !line.ends_with(kLiveExtension))
      continue;
    return std::string(line.substr(path, line.rfind('/') - path));
  }
  return "";
}

util::Result<Target> FindTarget(pid_t pid, bool may_be_ancestor) {
  const std::optional<ProcessStat> stat = StatOf(pid);
  if (!stat)
    return util::Status::Error(fmt::format("there is no process {}", pid));
  Target target{.pid = pid,
                .start_ticks = stat->start_ticks,
                .name = util::ProcCommand(pid),
                .live_directory = ""};
  if (HasEnded(*stat))
    return util::Status::Error(fmt::format("process {} ({}) has ended", pid, target.name));
  // The driver works through a thread of the process itself.
  if (stat->state == 'T' || stat->state == 't') {
    return util::Status::Error(
        stat->state == 't'
            ? fmt::format(
                  "process {} ({}) is held by a debugger, so it cannot move its memory: let "
                  "it go on first",
                  pid, target.name)
            : fmt::format("process {} ({}) is stopped, so it cannot move its memory: `kill -CONT "
                          "{}` first",
                          pid, target.name, pid));
  }
  if (!may_be_ancestor && IsAncestor(pid)) {
    return util::Status::Error(
        fmt::format("process {} ({}) started this command and would wait for itself: ask from "
                    "another shell, or call vramscope.yield_gpu() in it",
                    pid, target.name));
  }
  struct stat owner {};
  if (::stat(fmt::format("/proc/{}", pid).c_str(), &owner) != 0)
    return util::Status::Error(fmt::format("there is no process {}", pid));
  int error = 0;
  const std::optional<std::string> maps = util::ReadProc(pid, "maps", &error);
  if (!maps || (geteuid() != 0 && owner.st_uid != geteuid())) {
    if (access(fmt::format("/proc/{}", pid).c_str(), F_OK) != 0)
      return util::Status::Error(fmt::format("there is no process {}", pid));
    if (owner.st_uid != geteuid()) {
      return util::Status::Error(fmt::format("process {} ({}) is not yours: it belongs to user {}",
                                             pid, target.name, owner.st_uid));
    }
    return util::Status::Error(fmt::format("process {} ({}) cannot be looked into: {}", pid,
                                           target.name, util::ErrnoText(error)));
  }
  if (maps->find("/libcuda.so") == std::string::npos) {
    return util::Status::Error(fmt::format(
        "process {} ({}) does not use CUDA: it has not loaded libcuda", pid, target.name));
  }
  const std::string directory = LiveDirectoryOfMaps(*maps);
  if (!directory.empty() && IsLiveDirectory(directory))
    target.live_directory = directory;
  return target;
}

bool IsAlive(const Target& target) {
  const std::optional<ProcessStat> stat = StatOf(target.pid);
  return stat && stat->start_ticks == target.start_ticks && !HasEnded(*stat);
}

}  // namespace vramscope::cli
