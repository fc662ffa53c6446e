// SPDX-License-Identifier: Apache-2.0

#include "checkpoint/preflight.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>

#include "base/memory_groups.h"
#include "pipeline/console.h"
#include "pipeline/live_directory.h"
#include "pipeline/survivors.h"
#include "util/file.h"
#include "util/size_text.h"

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

constexpr size_t kMaxFileBytes = size_t{1} << 20;

std::string Text(const std::string& path) {
  const util::Result<std::string> text = util::ReadFile(path, kMaxFileBytes);
  return text ? *text : "";
}

// The number at the start of the text, behind spaces. "max" is none.
std::optional<uint64_t> Number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}

// The number in the line that begins with `key`.
std::optional<uint64_t> NumberAfter(std::string_view text, std::string_view key) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (text.substr(at, end - at).starts_with(key))
      return Number(text.substr(at + key.size(), end - at - key.size()));
    at = end + 1;
  }
  return std::nullopt;
}

// The driver needs this much besides the contents of the device.
constexpr uint64_t kHostMarginBytes = uint64_t{256} << 20;

std::string Describe(const resolve::Immovable& entry) {
  const char* const s = entry.count == 1 ? "" : "s";
  const std::string bytes =
      entry.bytes != 0 ? util::FormatBytes(entry.bytes) + " of " : std::string();
  switch (entry.kind) {
    case resolve::ImmovableKind::kManaged:
      return fmt::format("{}managed memory ({} allocation{})", bytes, entry.count, s);
    case resolve::ImmovableKind::kOpened:
      return fmt::format("{}memory opened from other processes ({} handle{})", bytes, entry.count,
                         s);
    case resolve::ImmovableKind::kExported:
      return fmt::format("{}memory exported to other processes ({} allocation{})", bytes,
                         entry.count, s);
    case resolve::ImmovableKind::kExternal:
      return fmt::format("{}external memory, of a graphics library ({} mapping{})", bytes,
                         entry.count, s);
    case resolve::ImmovableKind::kMulticast:
      return fmt::format("{} multicast object{} (NCCL makes none with NCCL_NVLS_ENABLE=0)",
                         entry.count, s);
    case resolve::ImmovableKind::kOverflow:
      return fmt::format("{}host memory in place of the GPU's (--overflow, {} allocation{})", bytes,
                         entry.count, s);
  }
  return "";
}

}  // namespace

std::string LiveDirectoryOfMaps(const std::string& maps) {
  for (size_t begin = 0; begin < maps.size();) {
    const size_t end = std::min(maps.find('\n', begin), maps.size());
    const std::string_view line(maps.data() + begin, end - begin);
    begin = end + 1;
    const size_t path = line.find('/');
    // The path of a finished recording ends in " (deleted)".
    if (path == line.npos || !line.ends_with(kLiveExtension))
      continue;
    return std::string(line.substr(path, line.rfind('/') - path));
  }
  return "";
}

util::Result<Target> FindTarget(pid_t pid, bool may_be_ancestor) {
  const std::optional<ProcessStat> stat = StatOf(pid);
  if (!stat)
    return util::Status::Error(fmt::format("process {} does not exist", pid));
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
                  "process {} ({}) is held by a debugger, so it cannot move its memory: detach "
                  "the debugger first",
                  pid, target.name)
            : fmt::format("process {} ({}) is stopped, so it cannot move its memory: `kill -CONT "
                          "{}` first",
                          pid, target.name, pid));
  }
  if (!may_be_ancestor && IsAncestor(pid)) {
    return util::Status::Error(
        fmt::format("process {} ({}) started this command and would wait for itself: use "
                    "another shell, or call vramscope.yield_gpu() in the process",
                    pid, target.name));
  }
  struct stat owner {};
  if (::stat(fmt::format("/proc/{}", pid).c_str(), &owner) != 0)
    return util::Status::Error(fmt::format("process {} does not exist", pid));
  int error = 0;
  const std::optional<std::string> maps = util::ReadProc(pid, "maps", &error);
  if (!maps || (geteuid() != 0 && owner.st_uid != geteuid())) {
    if (access(fmt::format("/proc/{}", pid).c_str(), F_OK) != 0)
      return util::Status::Error(fmt::format("process {} does not exist", pid));
    if (owner.st_uid != geteuid()) {
      return util::Status::Error(fmt::format("process {} ({}) is not yours: it belongs to user {}",
                                             pid, target.name, owner.st_uid));
    }
    return util::Status::Error(fmt::format("process {} ({}) cannot be inspected: {}", pid,
                                           target.name, util::ErrnoText(error)));
  }
  if (maps->find("/libcuda.so") == std::string::npos) {
    return util::Status::Error(
        fmt::format("process {} ({}) does not use CUDA: libcuda is not loaded", pid, target.name));
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

HostMemory FreeHostMemory(pid_t pid, const std::string& root) {
  HostMemory memory;
  if (const auto available = NumberAfter(Text(root + "/proc/meminfo"), "MemAvailable:")) {
    memory.free_bytes = *available * 1024;
    memory.limited_by = "the host";
  }
  base::MemoryGroups groups;
  groups.Find(std::to_string(pid).c_str(), root.c_str());
  for (size_t i = 0; i < groups.count(); ++i) {
    const uint64_t left = groups.FreeBytes(i, groups.LimitBytes(i));
    if (left >= memory.free_bytes)
      continue;
    memory.free_bytes = left;
    const std::string name = groups.group(i);
    memory.limited_by = fmt::format("the memory limit of its cgroup {}", name.empty() ? "/" : name);
  }
  return memory;
}

std::string DescribeImmovable(const resolve::Movability& movability) {
  std::string text;
  for (const resolve::Immovable& entry : movability.immovable)
    text += (text.empty() ? "" : ", ") + Describe(entry);
  return text;
}

util::Status CheckRecording(const Target& target, std::string* unchecked) {
  unchecked->clear();
  if (target.live_directory.empty()) {
    *unchecked = "it is not recorded";
    return {};
  }
  util::Result<std::unique_ptr<trace::Trace>> trace =
      trace::OpenTrace(target.live_directory, {.native_names = false});
  if (!trace) {
    *unchecked = "its recording cannot be read: " + trace.status().message();
    return {};
  }
  Progress progress("checking " + target.live_directory);
  const util::Result<resolve::Movability> found = resolve::FindImmovable(
      **trace, static_cast<uint32_t>(target.pid), [&](double share) { progress.Update(share); });
  if (!found) {
    *unchecked = "its recording cannot be read: " + found.status().message();
    return {};
  }
  if (!found->immovable.empty()) {
    return util::Status::Error(
        fmt::format("process {} ({}) holds {}, which the driver cannot move to the host and back",
                    target.pid, target.name, DescribeImmovable(*found)));
  }
  for (const std::string& gap : found->gaps)
    *unchecked += (unchecked->empty() ? "" : ", ") + gap;
  return {};
}

util::Status CheckHostMemory(const Target& target, uint64_t bytes) {
  const HostMemory memory = FreeHostMemory(target.pid);
  const uint64_t needed = bytes + kHostMarginBytes;
  if (memory.free_bytes >= needed)
    return {};
  return util::Status::Error(fmt::format(
      "the host has not enough memory for process {} ({}): {} are needed, {} are free within "
      "{}",
      target.pid, target.name, util::FormatBytes(needed), util::FormatBytes(memory.free_bytes),
      memory.limited_by));
}

}  // namespace vramscope::cli
