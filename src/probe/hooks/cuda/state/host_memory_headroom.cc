// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstring>

#include "base/raw_file.h"
#include "probe/hooks/cuda/state/overflow.h"

namespace vramscope::probe::cuda {
namespace {

constexpr uint64_t kLeastMargin = uint64_t{512} << 20;
constexpr uint64_t kMarginShare = 16;
constexpr size_t kMaxFileBytes = 4096;
constexpr char kMeminfo[] = "/proc/meminfo";

uint64_t LessMargin(uint64_t free_bytes, uint64_t total_bytes) {
  const uint64_t share = total_bytes / kMarginShare;
  const uint64_t margin = share > kLeastMargin ? share : kLeastMargin;
  return free_bytes > margin ? free_bytes - margin : 0;
}

// Of the line "KEY:   12345 kB", in bytes; 0 where there is none.
uint64_t ParseBytes(const char* text, const char* key) {
  const char* at = std::strstr(text, key);
  if (at == nullptr)
    return 0;
  at += std::strlen(key);
  while (*at == ' ')
    ++at;
  uint64_t kib = 0;
  for (; *at >= '0' && *at <= '9' && kib < uint64_t{1} << 50; ++at)
    kib = kib * 10 + static_cast<uint64_t>(*at - '0');
  return kib * 1024;
}

}  // namespace

uint64_t HostMemoryHeadroomBytes(const base::MemoryGroups& groups, const char* root) {
  char path[1024];
  const size_t root_size = std::strlen(root);
  if (root_size + sizeof kMeminfo > sizeof path)
    return 0;
  std::memcpy(path, root, root_size);
  std::memcpy(path + root_size, kMeminfo, sizeof kMeminfo);
  char text[kMaxFileBytes];
  const int fd = base::OpenFile(path, O_RDONLY);
  if (fd < 0)
    return 0;
  const ssize_t got = base::ReadFile(fd, text, sizeof text - 1);
  base::CloseFile(fd);
  text[got > 0 ? got : 0] = '\0';
  uint64_t room = LessMargin(ParseBytes(text, "MemAvailable:"), ParseBytes(text, "MemTotal:"));
  for (size_t i = 0; i < groups.count(); ++i) {
    const uint64_t limit = groups.LimitBytes(i);
    if (limit == UINT64_MAX)
      continue;
    const uint64_t left = LessMargin(groups.FreeBytes(i, limit), limit);
    room = left < room ? left : room;
  }
  return room;
}

}  // namespace vramscope::probe::cuda
