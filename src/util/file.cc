// SPDX-License-Identifier: Apache-2.0

#include "util/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <string_view>
#include <system_error>
#include <utility>

namespace vramscope::util {
namespace {

// Maps of a large program are a few MiB.
constexpr size_t kMaxProcBytes = size_t{64} << 20;

std::string PathOf(pid_t pid, const std::string& name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

}  // namespace

Status FileError(const std::string& path, const char* what, int error) {
  return Status::Error(path + ": " + what + ": " + ErrnoText(error));
}

std::string ErrnoText(int error) {
  return std::generic_category().message(error);
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0)
    close(fd_);
}

Result<UniqueFd> OpenRegular(const std::string& path, Links links, uint64_t* size_bytes) {
  const int no_links = links == Links::kRefuse ? O_NOFOLLOW : 0;
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | no_links));
  if (!fd.ok() && errno == ELOOP && links == Links::kRefuse)
    return Status::Error(path + ": is a symbolic link");
  if (!fd.ok() && errno == ENXIO)
    return Status::Error(path + ": is not a regular file");
  if (!fd.ok())
    return FileError(path, "cannot be opened", errno);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0)
    return FileError(path, "cannot be read", errno);
  if (!S_ISREG(info.st_mode))
    return Status::Error(path + ": is not a regular file");
  if (size_bytes != nullptr)
    *size_bytes = static_cast<uint64_t>(info.st_size);
  return fd;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      room_(std::exchange(other.room_, 0)),
      fd_(std::move(other.fd_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(room_, other.room_);
  std::swap(fd_, other.fd_);
  return *this;
}

MappedFile::~MappedFile() {
  if (room_ != 0)
    munmap(const_cast<uint8_t*>(data_), room_);
}

Result<MappedFile> MappedFile::Map(const std::string& path, Links links, size_t room) {
  uint64_t size = 0;
  VRAMSCOPE_ASSIGN_OR_RETURN(auto fd, OpenRegular(path, links, &size));
  MappedFile file;
  file.size_ = size;
  file.room_ = std::max<size_t>(size, room);
  if (file.room_ != 0) {
    void* data = mmap(nullptr, file.room_, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (data == MAP_FAILED) {
      file.room_ = 0;
      return FileError(path, "cannot be mapped", errno);
    }
    file.data_ = static_cast<const uint8_t*>(data);
  }
  if (room != 0)
    file.fd_ = std::move(fd);
  return file;
}

Result<MappedFile> MappedFile::Open(const std::string& path, Links links) {
  return Map(path, links, 0);
}

Result<MappedFile> MappedFile::OpenGrowing(const std::string& path, Links links) {
  return Map(path, links, size_t{64} << 30);
}

bool MappedFile::Grow() {
  struct stat info {};
  if (fstat(fd_.get(), &info) != 0 || static_cast<uint64_t>(info.st_size) > room_)
    return false;
  size_ = static_cast<size_t>(info.st_size);
  return true;
}

void MappedFile::Forget(size_t offset, size_t size) const {
  const size_t page = 4096;
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = (offset + size) / page * page;
  if (begin < end && end <= size_) {
    madvise(const_cast<uint8_t*>(data_) + begin, end - begin, MADV_DONTNEED);
  }
}

Result<std::string> ReadFile(const std::string& path, size_t limit_bytes, Links links) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto fd, OpenRegular(path, links, nullptr));
  std::string text;
  // Files of /proc say size 0, so read until the end whatever the size.
  char buffer[64 * 1024];
  for (;;) {
    const ssize_t got = read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return FileError(path, "cannot be read", errno);
    if (got == 0)
      return text;
    if (text.size() + static_cast<size_t>(got) > limit_bytes)
      return Status::Error(path + ": is larger than " + std::to_string(limit_bytes) + " bytes");
    text.append(buffer, static_cast<size_t>(got));
  }
}

std::optional<std::string> ReadToEnd(int fd, size_t limit_bytes) noexcept {
  try {
    std::string text;
    char buffer[16384];
    for (;;) {
      const ssize_t got = read(fd, buffer, sizeof buffer);
      if (got < 0 && errno == EINTR)
        continue;
      if (got < 0)
        return std::nullopt;
      if (got == 0)
        return text;
      if (text.size() + static_cast<size_t>(got) > limit_bytes) {
        errno = EFBIG;
        return std::nullopt;
      }
      text.append(buffer, static_cast<size_t>(got));
    }
  } catch (const std::exception&) {
    errno = ENOMEM;
    return std::nullopt;
  }
}

std::optional<std::string> ReadProc(pid_t pid, const std::string& name, int* error) noexcept {
  try {
    const UniqueFd fd(open(PathOf(pid, name).c_str(), O_RDONLY | O_CLOEXEC));
    std::optional<std::string> text;
    if (fd.ok())
      text = ReadToEnd(fd.get(), kMaxProcBytes);
    if (!text && error != nullptr)
      *error = errno;
    return text;
  } catch (const std::exception&) {
    if (error != nullptr)
      *error = ENOMEM;
    return std::nullopt;
  }
}

namespace {

std::vector<std::string> ListFolder(const std::string& path) noexcept {
  DIR* listing = nullptr;
  std::vector<std::string> names;
  try {
    listing = opendir(path.c_str());
    while (const dirent* const entry = listing == nullptr ? nullptr : readdir(listing)) {
      const std::string_view found = entry->d_name;
      if (found != "." && found != "..")
        names.emplace_back(found);
    }
  } catch (const std::exception&) {
    names.clear();
  }
  if (listing != nullptr)
    closedir(listing);
  return names;
}

}  // namespace

std::vector<pid_t> AllProcesses() noexcept {
  std::vector<pid_t> pids;
  try {
    for (const std::string& name : ListFolder("/proc")) {
      pid_t pid = 0;
      const char* const end = name.data() + name.size();
      if (std::from_chars(name.data(), end, pid).ptr == end)
        pids.push_back(pid);
    }
  } catch (const std::exception&) {
    pids.clear();
  }
  return pids;
}

std::vector<std::string> ListProc(pid_t pid, const std::string& name) noexcept {
  try {
    return ListFolder(PathOf(pid, name));
  } catch (const std::exception&) {
    return {};
  }
}

std::string ReadProcLink(pid_t pid, const std::string& name) noexcept {
  try {
    char target[PATH_MAX];
    const ssize_t length = readlink(PathOf(pid, name).c_str(), target, sizeof target);
    return length > 0 ? std::string(target, static_cast<size_t>(length)) : "";
  } catch (const std::exception&) {
    return "";
  }
}

std::string ProcCommand(pid_t pid) noexcept {
  std::optional<std::string> text = ReadProc(pid, "comm");
  if (!text)
    return "";
  if (const size_t end = text->find('\n'); end != std::string::npos)
    text->resize(end);
  return std::move(*text);
}

}  // namespace vramscope::util
