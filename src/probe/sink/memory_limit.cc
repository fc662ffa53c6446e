// SPDX-License-Identifier: Apache-2.0
#include "probe/sink/memory_limit.h"

#include <cstring>
#include <initializer_list>

#include "base/raw_file.h"

namespace vramscope::probe {
namespace {

// Version 1 says "no limit" with the largest multiple of a page.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;
// Of a limit: for the program, and for the finished file while the live ones are still there.
constexpr uint64_t kReserveShare = 4;
constexpr uint64_t kLeastReserveBytes = 32 << 20;
constexpr size_t kMaxTextBytes = 4096;
constexpr size_t kMaxFileBytes = 1100;  // a folder and a name in it

struct Names {
  const char* mount;  // below root
  const char* limit;  // files of a group
  const char* usage;
  const char* caches;  // key of memory.stat: what the kernel gives up where memory is short
};
constexpr Names kVersion1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                          "\ntotal_inactive_file "};
constexpr Names kVersion2{"/sys/fs/cgroup", "memory.max", "memory.current", "\ninactive_file "};

const Names& NamesOf(bool is_version_2) {
  return is_version_2 ? kVersion2 : kVersion1;
}

// Texts joined, "" where they are longer than the room.
template <size_t kBytes>
void Join(char (&out)[kBytes], const char* first, const char* second, const char* third) {
  size_t at = 0;
  for (const char* part : {first, second, third}) {
    const size_t length = std::strlen(part);
    if (at + length >= kBytes) {
      out[0] = '\0';
      return;
    }
    std::memcpy(out + at, part, length);
    at += length;
  }
  out[at] = '\0';
}

// The beginning of a group's file, "" where it cannot be read.
template <size_t kBytes>
void ReadText(const char* folder, const char* file, char (&text)[kBytes]) {
  char path[kMaxFileBytes];
  Join(path, folder, "/", file);
  text[0] = '\0';
  const int fd = base::OpenFile(path, O_RDONLY);
  if (fd < 0)
    return;
  const ssize_t got = base::ReadFile(fd, text, sizeof text - 1);
  text[got > 0 ? got : 0] = '\0';
  base::CloseFile(fd);
}

// kNoLimit for "max" and what else is no number.
uint64_t NumberOf(const char* text) {
  if (*text < '0' || *text > '9')
    return kNoLimit;
  uint64_t value = 0;
  for (; *text >= '0' && *text <= '9' && value < kNoLimit; ++text)
    value = value * 10 + static_cast<uint64_t>(*text - '0');
  return value;
}

uint64_t ReadNumber(const char* folder, const char* file) {
  char text[32];
  ReadText(folder, file, text);
  return NumberOf(text);
}

// In bytes; 0 where nothing says.
uint64_t CachesOf(const char* folder, const char* key) {
  char text[kMaxTextBytes];
  ReadText(folder, "memory.stat", text);
  const char* const line = std::strstr(text, key);
  const uint64_t bytes = line != nullptr ? NumberOf(line + std::strlen(key)) : 0;
  return bytes < kNoLimit ? bytes : 0;
}

}  // namespace

// The group and all above it. Inside of a container paths may be the host's: what is not there
// below the mount is passed over, up to the container's own group.
void MemoryLimit::FindAbove(const char* root,
                            bool is_version_2,
                            const char* path,
                            size_t size_bytes) {
  char group[kMaxPathBytes];
  if (size_bytes >= sizeof group)
    return;
  std::memcpy(group, path, size_bytes);
  const Names& names = NamesOf(is_version_2);
  for (size_t length = size_bytes;;) {
    while (length != 0 && group[length - 1] == '/')
      --length;
    group[length] = '\0';
    Group& found = groups_[count_];
    Join(found.folder, root, names.mount, group);
    found.is_version_2 = is_version_2;
    if (found.folder[0] != '\0' && ReadNumber(found.folder, names.limit) < kNoLimit &&
        ++count_ == kMaxGroups) {
      return;
    }
    if (length == 0)
      return;
    while (group[length - 1] != '/')
      --length;
  }
}

void MemoryLimit::Find(const char* root) {
  count_ = 0;
  char folder[kMaxPathBytes];
  Join(folder, root, "/proc/self", "");
  char text[kMaxTextBytes];
  ReadText(folder, "cgroup", text);
  // Lines "NUMBER:CONTROLLERS:/path"; version 2 has no controllers there.
  for (char* line = text; *line != '\0' && count_ < kMaxGroups;) {
    char* const end = line + std::strcspn(line, "\n");
    char* const controllers = line + std::strcspn(line, ":\n");
    char* const group = *controllers == ':' ? std::strchr(controllers + 1, ':') : nullptr;
    if (group != nullptr && group < end && group[1] == '/') {
      *group = ',';
      *controllers = ',';
      const bool is_version_2 = group == controllers + 1;
      const char* const memory = std::strstr(controllers, ",memory,");
      if (is_version_2 || (memory != nullptr && memory < group))
        FindAbove(root, is_version_2, group + 1, static_cast<size_t>(end - group - 1));
    }
    line = *end != '\0' ? end + 1 : end;
  }
}

bool MemoryLimit::HasRoomFor(uint64_t size_bytes) const {
  for (size_t i = 0; i < count_; ++i) {
    const char* const folder = groups_[i].folder;
    const Names& names = NamesOf(groups_[i].is_version_2);
    // Read anew: a limit can be changed.
    const uint64_t limit = ReadNumber(folder, names.limit);
    const uint64_t usage = ReadNumber(folder, names.usage);
    const uint64_t share = limit / kReserveShare;
    const uint64_t wanted = size_bytes + (share > kLeastReserveBytes ? share : kLeastReserveBytes);
    if (limit >= kNoLimit || usage >= kNoLimit || usage + wanted <= limit)
      continue;
    // The kernel adds up what caches hold when it is asked: only where it matters.
    if (usage + wanted > limit + CachesOf(folder, names.caches))
      return false;
  }
  return true;
}

}  // namespace vramscope::probe
