// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

// The few calls on files that the probe needs, by their system call numbers. The C library's own
// functions are cancellation points: a thread that the program cancels would end inside the probe.
// Errors are in errno.
namespace vramscope::base {

inline void CloseFile(int fd) {
  syscall(SYS_close, fd);
}

// -1 on error. Never 0, 1 or 2: where the program has closed those, what it prints still fails.
inline int OpenFile(const char* path, int flags, unsigned mode = 0) {
  const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, mode));
  if (fd < 0 || fd > STDERR_FILENO)
    return fd;
  const auto moved = static_cast<int>(syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  CloseFile(fd);
  return moved;
}

inline ssize_t ReadFile(int fd, void* data, size_t size_bytes) {
  return syscall(SYS_read, fd, data, size_bytes);
}

inline ssize_t ReadFileAt(int fd, void* data, size_t size_bytes, uint64_t offset) {
  return syscall(SYS_pread64, fd, data, size_bytes, static_cast<off_t>(offset));
}

inline ssize_t WriteFileAt(int fd, const void* data, size_t size_bytes, uint64_t offset) {
  return syscall(SYS_pwrite64, fd, data, size_bytes, static_cast<off_t>(offset));
}

}  // namespace vramscope::base
