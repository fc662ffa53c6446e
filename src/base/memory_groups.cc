// SPDX-License-Identifier: Apache-2.0
#include "base/memory_groups.h"

#include <cstring>
#include <initializer_list>

#include "base/raw_file.h"

namespace vramscope::base {
namespace {

// Version 1 says "no limit" with the largest multiple of a page.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;
constexpr size_t kMaxTextBytes = 4096;
constexpr size_t kMaxFileBytes = 1100;  // a folder and a name in it

struct Names {
  const char* mount;  // below root
  const char* limit;  // files of a group
  const char* usage;
  const char* caches;  // key of memory.stat: what the kernel gives up where memory is short
  const char* kills;   // the file with kKillsKey
};
constexpr Names kVersion1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                          "\ntotal_inactive_file ", "memory.oom_control"};
constexpr Names kVersion2{"/sys/fs/cgroup", "memory.max", "memory.current", "\ninactive_file ",
                          "memory.events"};
constexpr char kKillsKey[] = "\noom_kill ";

const Names& NamesOf(bool is_version_2) {
  return is_version_2 ? kVersion2 : kVersion1;
}

// Texts joined, "" if they are longer than the room.
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

// The beginning of a group's file, "" if it cannot be read.
template <size_t kBytes>
void ReadText(const char* folder, const char* file, char (&text)[kBytes]) {
  char path[kMaxFileBytes];
  Join(path, folder, "/", file);
  text[0] = '\0';
  const int fd = OpenFile(path, O_RDONLY);
  if (fd < 0)
    return;
  const ssize_t got = ReadFile(fd, text, sizeof text - 1);
  text[got > 0 ? got : 0] = '\0';
  CloseFile(fd);
}

// kNoLimit for "max" and for any text that is not a number.
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

// kNoLimit if the file has no such line.
uint64_t ReadNumberOf(const char* folder, const char* file, const char* key) {
  char text[kMaxTextBytes];
  ReadText(folder, file, text);
  const char* const line = std::strstr(text, key);
  return line != nullptr ? NumberOf(line + std::strlen(key)) : kNoLimit;
}

// In bytes; 0 if nothing says.
uint64_t CachesOf(const char* folder, const char* key) {
  const uint64_t bytes = ReadNumberOf(folder, "memory.stat", key);
  return bytes < kNoLimit ? bytes : 0;
}

constexpr uint64_t kLeastMargin = uint64_t{512} << 20;
constexpr uint64_t kMarginShare = 16;

uint64_t LessMargin(uint64_t free_bytes, uint64_t total_bytes) {
  const uint64_t share = total_bytes / kMarginShare;
  const uint64_t margin = share > kLeastMargin ? share : kLeastMargin;
  return free_bytes > margin ? free_bytes - margin : 0;
}

// The value of the line "KEY:   12345 kB", in bytes; 0 if there is none.
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

// The group and all above it. Inside a container the paths may be the host's: folders that do not
// exist below the mount are skipped, up to the container's own group.
void MemoryGroups::FindAbove(const char* root,
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
    found.mount = std::strlen(root) + std::strlen(names.mount);
    found.is_version_2 = is_version_2;
    if (own_.folder[0] == '\0' && ReadNumberOf(found.folder, names.kills, kKillsKey) < kNoLimit) {
      own_ = found;
    }
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

bool MemoryGroups::Find(const char* process, const char* root) {
  count_ = 0;
  own_ = {};
  char folder[kMaxPathBytes];
  Join(folder, root, "/proc/", process);
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
  return count_ != 0 || own_.folder[0] != '\0';
}

uint64_t MemoryGroups::LimitBytes(size_t index) const {
  const Group& group = groups_[index];
  const uint64_t limit = ReadNumber(group.folder, NamesOf(group.is_version_2).limit);
  return limit < kNoLimit ? limit : UINT64_MAX;
}

uint64_t MemoryGroups::FreeBytes(size_t index, uint64_t limit_bytes, uint64_t enough_bytes) const {
  const Group& group = groups_[index];
  const Names& names = NamesOf(group.is_version_2);
  uint64_t used = ReadNumber(group.folder, names.usage);
  if (limit_bytes == UINT64_MAX || used >= kNoLimit)
    return UINT64_MAX;
  if (used > limit_bytes || limit_bytes - used < enough_bytes) {
    const uint64_t caches = CachesOf(group.folder, names.caches);
    used -= caches < used ? caches : used;
  }
  return used < limit_bytes ? limit_bytes - used : 0;
}

uint64_t MemoryGroups::OutOfMemoryKills() const {
  if (own_.folder[0] == '\0')
    return 0;
  const uint64_t kills = ReadNumberOf(own_.folder, NamesOf(own_.is_version_2).kills, kKillsKey);
  return kills < kNoLimit ? kills : 0;
}

uint64_t HostMemoryHeadroomBytes(const MemoryGroups& groups, const char* root) {
  char text[kMaxTextBytes];
  ReadText(root, "proc/meminfo", text);
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

}  // namespace vramscope::base
