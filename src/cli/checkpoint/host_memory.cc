// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint/host_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "util/file.h"

namespace vramscope::cli {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;
// Version 1 says "no limit" with the largest multiple of a page.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

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

// Of the line that begins with `key`.
std::optional<uint64_t> NumberAfter(std::string_view text, std::string_view key) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (text.substr(at, end - at).starts_with(key))
      return Number(text.substr(at + key.size(), end - at - key.size()));
    at = end + 1;
  }
  return std::nullopt;
}

struct Hierarchy {
  const char* mount;  // below root
  const char* limit;  // files of a group
  const char* usage;
  const char* reclaimable;  // key of memory.stat: caches, which the kernel gives up for it
};
constexpr Hierarchy kVersion2{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};
constexpr Hierarchy kVersion1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                              "memory.usage_in_bytes", "total_inactive_file "};

void LimitBy(const Hierarchy& hierarchy,
             const std::string& root,
             const std::string& group,
             HostMemory* memory) {
  const std::string folder = root + hierarchy.mount + group + "/";
  const std::optional<uint64_t> limit = Number(Text(folder + hierarchy.limit));
  const std::optional<uint64_t> usage = Number(Text(folder + hierarchy.usage));
  if (!limit || *limit >= kNoLimit || !usage)
    return;
  const uint64_t caches =
      NumberAfter(Text(folder + "memory.stat"), hierarchy.reclaimable).value_or(0);
  const uint64_t used = *usage - std::min(*usage, caches);
  const uint64_t left = *limit - std::min(*limit, used);
  if (left >= memory->free_bytes)
    return;
  memory->free_bytes = left;
  memory->limited_by =
      fmt::format("the memory limit of its cgroup {}", group.empty() ? "/" : group);
}

// The group and all above it. Inside a container, paths may be those of the host: what is not there
// below the mount is passed over, up to the container's own group.
void LimitByGroups(const Hierarchy& hierarchy,
                   const std::string& root,
                   std::string group,
                   HostMemory* memory) {
  while (group.ends_with("/"))
    group.pop_back();
  for (;;) {
    LimitBy(hierarchy, root, group, memory);
    if (group.empty())
      return;
    group.erase(group.rfind('/'));
  }
}

}  // namespace

HostMemory FreeHostMemory(pid_t pid, const std::string& root) {
  HostMemory memory;
  if (const auto available = NumberAfter(Text(root + "/proc/meminfo"), "MemAvailable:")) {
    memory.free_bytes = *available * 1024;
    memory.limited_by = "the host";
  }
  // Lines "NUMBER:CONTROLLERS:/path".
  const std::string groups = Text(fmt::format("{}/proc/{}/cgroup", root, pid));
  for (size_t at = 0; at < groups.size();) {
    const size_t end = std::min(groups.find('\n', at), groups.size());
    const std::string_view line = std::string_view(groups).substr(at, end - at);
    at = end + 1;
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos || !line.substr(second + 1).starts_with("/"))
      continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string group(line.substr(second + 1));
    if (controllers == ",,")
      LimitByGroups(kVersion2, root, group, &memory);
    else if (controllers.find(",memory,") != std::string::npos)
      LimitByGroups(kVersion1, root, group, &memory);
  }
  return memory;
}

}  // namespace vramscope::cli
