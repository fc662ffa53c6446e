// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint/state_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "util/file.h"

namespace vramscope::cli {
namespace {

constexpr size_t kMaxStateBytes = 64 * 1024;
constexpr std::string_view kFirstLine = "vramscope yield 1";
constexpr std::string_view kLastLine = "end";

template <class T>
bool ParseNumber(std::string_view text, T* value) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return failed == std::errc() && end == text.data() + text.size();
}

// A directory that only this user can enter and that is no link to another; made where there is
// none. -1 with errno.
int OpenDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return -1;
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat info {};
  if (fd < 0)
    return -1;
  if (fstat(fd, &info) != 0 || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    close(fd);
    errno = EPERM;
    return -1;
  }
  return fd;
}

// -1 with errno: EWOULDBLOCK where another process has it.
int OpenLocked(int directory, const std::string& name, int flags) {
  for (;;) {
    const int fd = openat(directory, name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0600);
    if (fd < 0)
      return -1;
    struct stat info {};
    struct stat named {};
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid())
      errno = EPERM;
    else if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
      // Whoever had it may have removed it meanwhile.
      if (fstatat(directory, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
          named.st_ino == info.st_ino) {
        return fd;
      }
      close(fd);
      continue;
    }
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
}

}  // namespace

std::string FormatYieldState(const YieldState& state) {
  std::string text =
      fmt::format("{}\nstart {}\nyielded {}\ntime {}\nbytes {}\n", kFirstLine, state.start_ticks,
                  state.yielded ? 1 : 0, state.wall_seconds, state.bytes);
  // A name with a line feed cannot be kept.
  if (!state.live_directory.empty() && state.live_directory.find('\n') == std::string::npos)
    text += "recording " + state.live_directory + "\n";
  for (const YieldedDevice& device : state.devices)
    text += fmt::format("device {} {}\n", device.bytes, device.uuid);
  text += kLastLine;
  text += '\n';
  return text;
}

std::optional<YieldState> ParseYieldState(const std::string& text) {
  YieldState state;
  bool first = true;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (std::exchange(first, false)) {
      if (line != kFirstLine)
        return std::nullopt;
      continue;
    }
    if (line == kLastLine)
      return state;
    const size_t space = line.find(' ');
    if (space == line.npos)
      return std::nullopt;
    const std::string_view key = line.substr(0, space);
    const std::string_view value = line.substr(space + 1);
    bool good = true;
    if (key == "start") {
      good = ParseNumber(value, &state.start_ticks);
    } else if (key == "yielded") {
      state.yielded = value == "1";
    } else if (key == "time") {
      good = ParseNumber(value, &state.wall_seconds);
    } else if (key == "bytes") {
      good = ParseNumber(value, &state.bytes);
    } else if (key == "recording") {
      state.live_directory = value;
    } else if (key == "device") {
      YieldedDevice device;
      const size_t next = value.find(' ');
      good = next != value.npos && ParseNumber(value.substr(0, next), &device.bytes);
      if (good)
        device.uuid = value.substr(next + 1);
      state.devices.push_back(std::move(device));
    }
    if (!good)
      return std::nullopt;
  }
  return std::nullopt;  // it was being written when its writer died
}

util::Result<std::unique_ptr<StateFile>> StateFile::Open(
    pid_t pid,
    const std::vector<std::string>& directories) {
  const std::string name = fmt::format("yield-{}", pid);
  std::string failure = "there is no place for it";
  // First where it is, then where it can be.
  for (const int flags : {0, O_CREAT}) {
    for (const std::string& path : directories) {
      const int directory = OpenDirectory(path);
      const int file = directory < 0 ? -1 : OpenLocked(directory, name, flags);
      if (file >= 0)
        return std::unique_ptr<StateFile>(new StateFile(directory, file, name));
      const int error = errno;
      if (directory >= 0)
        close(directory);
      if (error == EWOULDBLOCK) {
        return util::Status::Error(
            fmt::format("another vramscope is at work on process {} just now", pid));
      }
      if (flags != 0 || error != ENOENT)
        failure = fmt::format("{}/{}: {}", path, name, util::ErrnoText(error));
    }
  }
  return util::Status::Error("what `resume` needs cannot be kept: " + failure);
}

StateFile::~StateFile() {
  struct stat info {};
  if (fstat(file_, &info) == 0 && info.st_size == 0)
    Remove();
  close(file_);
  close(directory_);
}

std::optional<YieldState> StateFile::Read(uint64_t start_ticks) const {
  std::string text(kMaxStateBytes, '\0');
  const ssize_t got = pread(file_, text.data(), text.size(), 0);
  if (got <= 0)
    return std::nullopt;
  text.resize(static_cast<size_t>(got));
  std::optional<YieldState> state = ParseYieldState(text);
  if (state && state->start_ticks != start_ticks)
    return std::nullopt;
  return state;
}

util::Status StateFile::Save(const YieldState& state) {
  const std::string text = FormatYieldState(state);
  if (ftruncate(file_, 0) != 0 ||
      pwrite(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return util::Status::Error("what `resume` needs cannot be kept: " + util::ErrnoText(errno));
  }
  return {};
}

void StateFile::Remove() {
  unlinkat(directory_, name_.c_str(), 0);
}

std::vector<std::string> StateDirectories() {
  std::vector<std::string> directories;
  const char* const runtime = getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/' && access(runtime, W_OK | X_OK) == 0)
    directories.push_back(std::string(runtime) + "/vramscope");
  directories.push_back(fmt::format("/tmp/vramscope-{}", geteuid()));
  return directories;
}

}  // namespace vramscope::cli
