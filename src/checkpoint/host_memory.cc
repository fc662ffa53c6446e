// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/host_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/memory_groups.h"
#include "util/file.h"

namespace vramscope::cli {
namespace {

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

}  // namespace

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

}  // namespace vramscope::cli
