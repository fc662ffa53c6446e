// SPDX-License-Identifier: Apache-2.0
#include "util/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace vramscope::util {
namespace {

Status FileError(const std::string& path, const char* what, int error) {
  return Status::Error(path + ": " + what + ": " + ErrnoText(error));
}

// Opens a regular file for reading; a FIFO of that name must not block, so it is opened
// non-blocking before it is looked at.
Result<int> OpenRegular(const std::string& path, uint64_t* size) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return FileError(path, "cannot be opened", errno);
  struct stat info {};
  if (fstat(fd, &info) != 0) {
    const int error = errno;
    close(fd);
    return FileError(path, "cannot be read", error);
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return Status::Error(path + ": is not a regular file");
  }
  *size = static_cast<uint64_t>(info.st_size);
  return fd;
}

}  // namespace

std::string ErrnoText(int error) {
  return std::generic_category().message(error);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (size_ != 0)
    munmap(const_cast<uint8_t*>(data_), size_);
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  uint64_t size = 0;
  auto fd = OpenRegular(path, &size);
  if (!fd.ok())
    return fd.status();
  MappedFile file;
  if (size != 0) {
    void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, *fd, 0);
    const int error = errno;
    if (data == MAP_FAILED) {
      close(*fd);
      return FileError(path, "cannot be mapped", error);
    }
    file.data_ = static_cast<const uint8_t*>(data);
    file.size_ = size;
  }
  close(*fd);
  return file;
}

void MappedFile::Forget(size_t offset, size_t size) const {
  const size_t page = 4096;
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = (offset + size) / page * page;
  if (begin < end && end <= size_) {
    madvise(const_cast<uint8_t*>(data_) + begin, end - begin, MADV_DONTNEED);
  }
}

AtomicFile::AtomicFile(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)),
      offset_(other.offset_) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0)
    return;
  close(fd_);
  unlink(temporary_.c_str());
}

std::string AtomicFile::TemporaryName(const std::string& path) {
  return path + ".tmp." + std::to_string(getpid());
}

Result<AtomicFile> AtomicFile::Create(const std::string& path) {
  std::string temporary = TemporaryName(path);
  const int fd = open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    return FileError(path, "cannot be written", errno);
  return AtomicFile(path, std::move(temporary), fd);
}

Status AtomicFile::Write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR)
        continue;
      return FileError(path_, "cannot be written", errno);
    }
    offset_ += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Status AtomicFile::Write(std::string_view text) {
  return Write(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

Status AtomicFile::Commit() {
  // Without fsync a power cut soon after the rename can leave an empty file under the good name.
  if (fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) {
    return FileError(path_, "cannot be written", errno);
  }
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return FileError(path_, "cannot be written", errno);
  }
  close(std::exchange(fd_, -1));
  return {};
}

Result<std::string> ReadFile(const std::string& path, size_t limit_bytes) {
  uint64_t size = 0;
  auto fd = OpenRegular(path, &size);
  if (!fd.ok())
    return fd.status();
  std::string text;
  Status status;
  // Files of /proc say size 0, so read until the end whatever the size.
  char buffer[64 * 1024];
  while (status.ok()) {
    const ssize_t got = read(*fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      status = FileError(path, "cannot be read", errno);
    if (got <= 0)
      break;
    if (text.size() + static_cast<size_t>(got) > limit_bytes) {
      status = Status::Error(path + ": is larger than " + std::to_string(limit_bytes) + " bytes");
    }
    text.append(buffer, static_cast<size_t>(got));
  }
  close(*fd);
  if (!status.ok())
    return status;
  return text;
}

}  // namespace vramscope::util
