// SPDX-License-Identifier: Apache-2.0
#include "util/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <exception>
#include <string_view>

#include "util/file.h"

namespace vramscope::util {
namespace {

// Maps of a large program are a few MiB.
constexpr size_t kMaxProcBytes = size_t{64} << 20;

std::string PathOf(pid_t pid, const std::string& name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

}  // namespace

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
