// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace vramscope::probe {

// The memory limits of the control groups that this process is in (versions 1 and 2), for files in
// memory: the pages of a tmpfs count as the program's, cannot be given up for others, and whoever
// goes beyond a limit is killed.
//
// Find() once, before other threads ask. Then any thread, without locks or heap.
class MemoryLimit {
 public:
  // Looks where this process is and which of its groups have a limit. `root` stands for "/" in
  // tests.
  void Find(const char* root = "");
  // Whether a quarter of each limit, and 32 MiB, are still free when `size_bytes` more are taken.
  // True where no limit can be read.
  bool HasRoomFor(uint64_t size_bytes) const;

 private:
  static constexpr size_t kMaxGroups = 4;
  static constexpr size_t kMaxPathBytes = 1024;
  struct Group {
    char folder[kMaxPathBytes];
    bool is_version_2;
  };

  void FindAbove(const char* root, bool is_version_2, const char* path, size_t size_bytes);

  Group groups_[kMaxGroups] = {};
  size_t count_ = 0;
};

}  // namespace vramscope::probe
