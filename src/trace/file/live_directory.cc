// SPDX-License-Identifier: Apache-2.0
#include "trace/file/live_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "format/layout.h"
#include "util/utf8.h"

namespace vramscope::trace {

namespace fs = std::filesystem;

LiveDirectory::LiveDirectory(const std::string& path)
    : path_(path), fd_(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  struct stat info {};
  if ((fd_.ok() ? fstat(fd_.get(), &info) : stat(path.c_str(), &info)) == 0) {
    device_ = info.st_dev;
    inode_ = info.st_ino;
  }
  // Each exclusive lock takes moments: one that takes longer is of a process that was stopped.
  constexpr int kTries = 500;
  constexpr std::chrono::milliseconds kStep{10};
  for (int i = 0; fd_.ok() && IsAtItsPath() && i < kTries; ++i) {
    if (flock(fd_.get(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK)
      break;
    std::this_thread::sleep_for(kStep);
  }
}

bool LiveDirectory::IsAtItsPath() const {
  struct stat named {};
  return stat(path_.c_str(), &named) == 0 && named.st_dev == device_ && named.st_ino == inode_;
}

util::Result<std::vector<std::string>> ListLiveFiles(const std::string& directory) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".vrl")
      paths.push_back(it->path());
  }
  if (error) {
    return util::Status::Error(directory + ": cannot be read: " + error.message());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::set<std::string> ReadManifest(const std::string& directory) {
  constexpr size_t kMostBytes = 4u << 20;
  constexpr size_t kMostNames = 1u << 16;
  std::set<std::string> names;
  const auto text =
      util::ReadFile(directory + "/" + format::kManifestFile, kMostBytes, util::Links::kRefuse);
  if (!text.ok() || !text->starts_with(format::kManifestStart))
    return names;
  // What has no line end was cut off.
  for (size_t begin = sizeof format::kManifestStart - 1, end = 0;
       names.size() < kMostNames && (end = text->find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const std::string name = text->substr(begin, end - begin);
    if (name.ends_with(".vrl") && name.find('/') == std::string::npos)
      names.insert(name);
  }
  return names;
}

void AddMissing(const std::set<std::string>& missing, SessionJson* session, LossCounter* losses) {
  constexpr size_t kMostNamed = 16;
  losses->Add(format::Loss::kMissingFiles, missing.size());
  size_t named = 0;
  for (const std::string& name : missing) {
    if (++named > kMostNamed)
      break;
    session->notes.emplace_back("missing file", util::ValidUtf8(name));
  }
}

std::optional<uint64_t> SizeOf(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0)
    return std::nullopt;
  return static_cast<uint64_t>(info.st_size);
}

void AddUnrecorded(const std::string& directory, SessionJson* session, LossCounter* losses) {
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != format::kUnrecordedExtension)
      continue;
    std::error_code unreadable;
    const std::string reason = fs::read_symlink(it->path(), unreadable).string();
    const std::string name = it->path().filename().string();
    int number = 0;
    std::from_chars(reason.data(), reason.data() + reason.size(), number);
    losses->Add(format::Loss::kNotRecorded, 1);
    session->notes.emplace_back(
        "process " + name.substr(0, name.find('.')),
        "not recorded: its file could not be made: " + util::ErrnoText(number));
  }
}

}  // namespace vramscope::trace
