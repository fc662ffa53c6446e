// SPDX-License-Identifier: Apache-2.0
#include "probe/sink/live_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/stat.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "base/raw_file.h"

namespace vramscope::probe {
namespace {

constexpr int kStatxBasic = 0x7ff;

// Identifies the file of a descriptor: the path may have been replaced since. Uses statx by its
// number, because fstat's symbol moved in glibc 2.33.
bool Identify(int fd, uint64_t* inode, uint64_t* device) {
  struct statx info;
  if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, kStatxBasic, &info) != 0)
    return false;
  *inode = info.stx_ino;
  *device = (static_cast<uint64_t>(info.stx_dev_major) << 32) | info.stx_dev_minor;
  return true;
}

bool IsInMemory(int fd) {
  struct statfs info;
  return syscall(SYS_fstatfs, fd, &info) == 0 &&
         (info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC);
}

bool WriteZeros(int fd, uint64_t offset, uint64_t size) {
  // Never written to, so that it uses no memory. Much at once: the kernel takes large pages.
  static uint8_t zeros[1 << 20];
  while (size != 0) {
    const size_t part = size < sizeof zeros ? size : sizeof zeros;
    const ssize_t written = base::WriteFileAt(fd, zeros, part, offset);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return false;
    offset += static_cast<uint64_t>(written);
    size -= static_cast<uint64_t>(written);
  }
  return true;
}

// Growing beyond the limit would send SIGXFSZ to the program.
bool MayGrowTo(uint64_t size) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
         size <= limit.rlim_cur;
}

// Allocates [offset, offset + size) on disk. It also writes zeros there. This allocates the range
// on file systems without fallocate. On others the kernel then maps pages from its cache, which is
// faster than making each page in a fault (ext4: 0.8 us instead of 3.7).
bool Allocate(int fd, uint64_t offset, uint64_t size, bool in_memory) {
  if (!MayGrowTo(offset + size)) {
    errno = EFBIG;
    return false;
  }
  bool allocated = false;
  do {
    allocated =
        syscall(SYS_fallocate, fd, 0, static_cast<long>(offset), static_cast<long>(size)) == 0;
  } while (!allocated && errno == EINTR);
  if (!allocated && errno != EOPNOTSUPP && errno != ENOSYS)
    return false;
  return (allocated && in_memory) || WriteZeros(fd, offset, size);
}

}  // namespace

uint8_t* LiveFile::Map(int fd, uint64_t offset, uint64_t size_bytes) {
  if (!Allocate(fd, offset, size_bytes, is_in_memory_))
    return nullptr;
  void* memory =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (memory == MAP_FAILED)
    return nullptr;
  return static_cast<uint8_t*>(memory);
}

void LiveFile::PreparePages(uint8_t* memory, size_t size_bytes) {
  // Not by MAP_POPULATE, which prepares pages of a shared mapping for reading alone: each would be
  // gone through twice. Before Linux 5.14 the faults come one by one.
  constexpr int kMadvPopulateWrite = 23;
  madvise(memory, size_bytes, kMadvPopulateWrite);
}

int LiveFile::Create(const char* path) {
  const size_t length = std::strlen(path);
  if (length >= sizeof path_)
    return ENAMETOOLONG;
  std::memcpy(path_, path, length + 1);
  const int fd = base::OpenFile(path, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (fd < 0)
    return errno;
  uint8_t* page = nullptr;
  int error = 0;
  is_in_memory_ = IsInMemory(fd);
  if (!Identify(fd, &inode_, &device_)) {
    error = errno != 0 ? errno : EIO;
  } else if ((page = Map(fd, 0, format::kPageBytes)) == nullptr) {
    error = errno != 0 ? errno : ENOSPC;
  }
  base::CloseFile(fd);
  if (error != 0) {
    unlink(path);
    return error;
  }
  header_ = reinterpret_cast<format::FileHeader*>(page);
  std::memcpy(header_->magic, format::kFileMagic, format::kEarlyMagicBytes);
  std::atomic_thread_fence(std::memory_order_release);
  header_->end_bytes.store(format::kPageBytes, std::memory_order_relaxed);
  if (is_in_memory_)
    memory_groups_.Find();
  return 0;
}

// Pages of a tmpfs count as the program's memory and cannot be given up for others. A quarter of
// each limit, 32 MiB at least, is left to the program, and to the finished file while this one is
// there.
bool LiveFile::MemoryHasRoomFor(uint64_t size_bytes) const {
  constexpr uint64_t kLeastLeftBytes = 32 << 20;
  for (size_t i = 0; i < memory_groups_.count(); ++i) {
    const uint64_t limit = memory_groups_.LimitBytes(i);
    const uint64_t share = limit / 4;
    const uint64_t wanted = size_bytes + (share > kLeastLeftBytes ? share : kLeastLeftBytes);
    if (memory_groups_.FreeBytes(i, limit, wanted) < wanted)
      return false;
  }
  return true;
}

uint8_t* LiveFile::MapSpace(uint32_t size_bytes) {
  if (is_in_memory_ && !MemoryHasRoomFor(size_bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  const int fd = base::OpenFile(path_, O_RDWR);
  if (fd < 0)
    return nullptr;
  uint8_t* space = nullptr;
  uint64_t inode = 0, device = 0;
  if (Identify(fd, &inode, &device) && inode == inode_ && device == device_) {
    uint64_t offset = header_->end_bytes.fetch_add(size_bytes, std::memory_order_relaxed);
    space = Map(fd, offset, size_bytes);
    if (space == nullptr) {
      // Given back if other threads have claimed nothing after it: a full disk is tried again and
      // again.
      uint64_t end = offset + size_bytes;
      header_->end_bytes.compare_exchange_strong(end, offset, std::memory_order_relaxed);
    }
  }
  base::CloseFile(fd);
  return space;
}

void LiveFile::Close() {
  if (header_ != nullptr)
    munmap(header_, format::kPageBytes);
  Forget();
}

void LiveFile::Forget() {
  header_ = nullptr;
  path_[0] = '\0';
}

void AddToManifest(const char* path, const char* name) {
  const int fd = base::OpenFile(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0)
    return;
  char line[256];
  const size_t length = std::strlen(name);
  struct statx info;
  if (length + 1 < sizeof line &&
      syscall(SYS_statx, fd, "", AT_EMPTY_PATH, kStatxBasic, &info) == 0 &&
      S_ISREG(info.stx_mode) && info.stx_nlink == 1 && info.stx_uid == geteuid() &&
      MayGrowTo(info.stx_size + length + 1)) {
    std::memcpy(line, name, length);
    line[length] = '\n';
    // In one call: lines of several processes do not mix.
    syscall(SYS_write, fd, line, length + 1);
  }
  base::CloseFile(fd);
}

bool CountLossOfAnother(const char* path, format::Loss loss, uint64_t count) {
  const int fd = base::OpenFile(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0)
    return false;
  // Only in what a launcher of the same user has made.
  struct statx info;
  bool counted = false;
  if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, kStatxBasic, &info) == 0 &&
      S_ISREG(info.stx_mode) && info.stx_nlink == 1 && info.stx_uid == geteuid() &&
      info.stx_size >= format::kPageBytes) {
    void* const page = mmap(nullptr, format::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) {
      auto* const header = static_cast<format::FileHeader*>(page);
      if (std::memcmp(header->magic, format::kFileMagic, sizeof header->magic) == 0 &&
          header->minor >= 3 &&
          header->writer == static_cast<uint16_t>(format::WriterKind::kLauncher)) {
        header->lost_by_others[static_cast<uint32_t>(loss)].fetch_add(count,
                                                                      std::memory_order_relaxed);
        counted = true;
      }
      munmap(page, format::kPageBytes);
    }
  }
  base::CloseFile(fd);
  return counted;
}

}  // namespace vramscope::probe
