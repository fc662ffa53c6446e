// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "util/status.h"

namespace vramscope::util {

// A regular file mapped for reading. Its size is the one it had when it was opened. Move-only.
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Errors name the path and the reason. An empty file maps to no bytes.
  static Result<MappedFile> Open(const std::string& path);

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  // The kernel may drop these pages again: whoever streams through a large file says so.
  void Forget(size_t offset, size_t size) const;

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// A file that appears under its name only when it is whole: written under a temporary name in the
// same directory, then renamed. Dropped unless Commit() was called. Move-only.
class AtomicFile {
 public:
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  static Result<AtomicFile> Create(const std::string& path);
  // The temporary name that this process uses for `path`.
  static std::string TemporaryName(const std::string& path);
  Status Write(std::span<const uint8_t> bytes);
  Status Write(std::string_view text);
  // Bytes written so far.
  uint64_t offset() const { return offset_; }
  // For writers of their own, before Commit().
  int fd() const { return fd_; }
  Status Commit();

 private:
  AtomicFile(std::string path, std::string temporary, int fd);

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  uint64_t offset_ = 0;
};

// The whole of a regular file, or an error that names it; a file above `limit_bytes` is refused.
Result<std::string> ReadFile(const std::string& path, size_t limit_bytes);

// The text of `error` (an errno value), without the program's name.
std::string ErrnoText(int error);

}  // namespace vramscope::util
