// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/memory_groups.h"
#include "format/enums.h"
#include "format/layout.h"

// The live file on disk. It is opened anew where space is claimed and closed at once, so that no
// descriptor of ours can be closed, inherited or reused by the program. Every byte is allocated on
// disk before it is mapped: a full disk under a sparse mapping would be a SIGBUS in the program.
namespace vramscope::probe {

class LiveFile {
 public:
  // Creates `path` (which must not exist) with its header page mapped. 0 or an errno.
  int Create(const char* path);
  // Maps `size_bytes` at the file's end, allocated and zeroed. nullptr when that is not possible
  // (disk, quota, RLIMIT_FSIZE, memory limit, directory gone). Safe in any thread.
  uint8_t* MapSpace(uint32_t size_bytes);
  // Has the kernel prepare mapped pages: a page fault in the middle of a record would cost more
  // than the record.
  static void PreparePages(uint8_t* memory, size_t size_bytes);

  format::FileHeader* header() const { return header_; }
  const char* path() const { return path_; }
  // Unmaps the header. The file must not be used afterwards.
  void Close();
  // In a forked child: the mapping stays, the file is the parent's.
  void Forget();

 private:
  uint8_t* Map(int fd, uint64_t offset, uint64_t size_bytes);
  bool MemoryHasRoomFor(uint64_t size_bytes) const;

  format::FileHeader* header_ = nullptr;
  uint64_t inode_ = 0;
  uint64_t device_ = 0;
  bool is_in_memory_ = false;
  base::MemoryGroups memory_groups_;  // where it is in memory
  char path_[4096] = {};
};

// Counts in FileHeader::lost_by_others of the launcher's file at `path`. False if that is none.
// It needs no room: the page is there.
bool CountLossOfAnother(const char* path, format::Loss loss, uint64_t count);

// Adds `name` as a line to the manifest at `path` (format::kManifestFile), where there is one of
// this user's. A line that does not get in costs a reader nothing but the check whether the file is
// there.
void AddToManifest(const char* path, const char* name);

}  // namespace vramscope::probe
