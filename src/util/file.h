// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "util/status.h"

namespace vramscope::util {

// A file descriptor that is closed with its owner. Move-only.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();

  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Whether the last part of a path may be a symbolic link. Files in a recording's directory may not:
// the directory may come from another person.
enum class Links { kFollow, kRefuse };

// Opens a regular file for reading. Any other kind of file is an error at once: opening a FIFO must
// not wait for its other end. `size_bytes` may be nullptr.
Result<UniqueFd> OpenRegular(const std::string& path, Links links, uint64_t* size_bytes);

// A regular file mapped for reading. Its size is the one it had when it was opened. Move-only.
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Errors name the path and the reason. An empty file maps to no bytes.
  static Result<MappedFile> Open(const std::string& path, Links links = Links::kFollow);
  // The same of a file that grows, with addresses for 64 GiB.
  static Result<MappedFile> OpenGrowing(const std::string& path, Links links);

  // Sees what the file has by now, at the same addresses. False if it has no room for that.
  bool Grow();
  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  // Lets the kernel drop these pages. For code that streams through a large file.
  void Forget(size_t offset, size_t size) const;

 private:
  static Result<MappedFile> Map(const std::string& path, Links links, size_t room);

  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  size_t room_ = 0;  // bytes of the mapping
  UniqueFd fd_;      // of a file that grows
};

// Bytes from the first to the last, once.
class ByteStream {
 public:
  // The size of one read.
  static constexpr size_t kPieceBytes = size_t{16} << 10;

  virtual ~ByteStream() = default;
  // Up to out.size() bytes; 0 at the end.
  virtual Result<size_t> Read(std::span<char> out) = 0;
};

// The bytes of a text, which must outlive it.
class TextStream : public ByteStream {
 public:
  explicit TextStream(std::string_view text) : text_(text) {}
  Result<size_t> Read(std::span<char> out) override {
    const size_t bytes = text_.copy(out.data(), out.size());
    text_.remove_prefix(bytes);
    return bytes;
  }

 private:
  std::string_view text_;
};

// The whole of a regular file, or an error that names it; a file above `limit_bytes` is refused.
Result<std::string> ReadFile(const std::string& path,
                             size_t limit_bytes,
                             Links links = Links::kFollow);

// "PATH: cannot be opened: No such file or directory"; `what` is "cannot be opened".
Status FileError(const std::string& path, const char* what, int error);

// The text of `error` (an errno value), without the program's name.
std::string ErrnoText(int error);

// Reads /proc. No other code does. A process can end at any moment, also between opening one of its
// files and reading it: then there is nothing to say, as there is where memory runs out. Nothing
// here throws, for the threads of the launcher.

// The text of /proc/PID/`name` ("stat", "task/7/children"). None if it cannot be read, or holds
// more than anybody wants; `error`, where given, is errno then.
std::optional<std::string> ReadProc(pid_t pid,
                                    const std::string& name,
                                    int* error = nullptr) noexcept;

// Every process that can be seen.
std::vector<pid_t> AllProcesses() noexcept;

// The names in the directory /proc/PID/`name` ("fd", "task").
std::vector<std::string> ListProc(pid_t pid, const std::string& name) noexcept;

// The target of the symbolic link /proc/PID/`name`, or "".
std::string ReadProcLink(pid_t pid, const std::string& name) noexcept;

// The name of the process's program, or "".
std::string ProcCommand(pid_t pid) noexcept;

// Reads to the end, or to none if that fails or there are more than `limit_bytes`. A seam for
// tests.
std::optional<std::string> ReadToEnd(int fd, size_t limit_bytes) noexcept;

}  // namespace vramscope::util
