// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace vramscope::base {

// The control groups (versions 1 and 2) whose memory limits apply to a process. The kernel kills a
// process that exceeds one. Without heap, for use inside of the program.
//
// Find() once, before other threads ask. Then any thread, without locks.
class MemoryGroups {
 public:
  // Looks where the process ("self" or its number) is and which of its groups, and of those above
  // them, have a limit: four at most. False if it has no group. Tests pass another `root` than "/".
  bool Find(const char* process = "self", const char* root = "");

  size_t count() const { return count_; }
  // The group's path below the mount, "" for the root.
  const char* group(size_t index) const { return groups_[index].folder + groups_[index].mount; }
  // Its limit, or UINT64_MAX, as it is now: limits can be changed.
  uint64_t LimitBytes(size_t index) const;
  // The bytes that are left below the limit. Caches of files count as left: the kernel gives them
  // up for others. They are added only where less than `enough_bytes` are left without them, since
  // the kernel adds them up when it is asked.
  uint64_t FreeBytes(size_t index, uint64_t limit_bytes, uint64_t enough_bytes = UINT64_MAX) const;
  // Its own group, as a path; "" if it has no count of kills.
  const char* own_group() const { return own_.folder; }
  // Processes of that group, and of those below, that the kernel killed because memory ran out.
  uint64_t OutOfMemoryKills() const;

 private:
  static constexpr size_t kMaxGroups = 4;
  static constexpr size_t kMaxPathBytes = 1024;
  struct Group {
    char folder[kMaxPathBytes];
    size_t mount;  // bytes of `folder` before the group's path
    bool is_version_2;
  };

  void FindAbove(const char* root, bool is_version_2, const char* path, size_t size_bytes);

  Group own_ = {};  // has a count of kills; the folder is empty if there is none
  Group groups_[kMaxGroups] = {};
  size_t count_ = 0;
};

// Bytes of the machine's memory that can be taken permanently without an out-of-memory kill: the
// memory available to the machine and within the limits of the process's control groups, less a
// margin of each. Reads files of /proc and /sys, and nothing else; errno is the caller's to keep.
// Tests pass another `root` than "/".
uint64_t HostMemoryHeadroomBytes(const MemoryGroups& groups, const char* root = "");

}  // namespace vramscope::base
