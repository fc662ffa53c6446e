// SPDX-License-Identifier: Apache-2.0
#include "record/attach/shared_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "pipeline/live_directory.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "vramscope-attach-";
constexpr char kPackage[] = "vramscope";
constexpr size_t kMostFileBytes = size_t{64} << 20;
// Of a container, in this order.
constexpr const char* kPlaces[] = {"/tmp", "/var/tmp", "/dev/shm"};

std::string PathOf(const util::UniqueFd& fd) {
  return fmt::format("/proc/self/fd/{}", fd.get());
}

// The directory `path` below `root`. No link is followed: it could lead out of the container.
util::UniqueFd OpenBelow(const util::UniqueFd& root, std::string_view path) {
  util::UniqueFd directory(openat(root.get(), ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  while (directory.ok() && !path.empty()) {
    path.remove_prefix(1);
    const std::string name(path.substr(0, path.find('/')));
    path.remove_prefix(name.size());
    directory = util::UniqueFd(
        openat(directory.get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  }
  return directory;
}

// Whether code can be loaded from the file system.
bool AllowsCode(const util::UniqueFd& directory) {
  struct statvfs info {};
  return fstatvfs(directory.get(), &info) == 0 && (info.f_flag & (ST_NOEXEC | ST_RDONLY)) == 0;
}

bool IsRecording(const std::string& name) {
  return name.ends_with(".vram.d");
}

void RemoveFile(const util::OwnedDirectory& folder, const std::string& name) {
  if (folder.RemoveLink(name))
    return;
  if (util::Result<util::UniqueFd> file = folder.Open(name, nullptr); file)
    (void)folder.Remove(name, *file);
}

// Removes the folder with all that this program puts into one. `path`: where it is.
void RemoveFolder(util::OwnedDirectory& folder, const std::string& path) {
  for (const std::string& name : folder.Names()) {
    if (IsRecording(name))
      continue;
    util::Result<util::OwnedDirectory> inner = util::OwnedDirectory::Open(path + "/" + name);
    if (!inner) {
      RemoveFile(folder, name);
      continue;
    }
    for (const std::string& file : inner->Names())
      RemoveFile(*inner, file);
    (void)inner->RemoveSelf();
  }
  (void)folder.RemoveSelf();
}

void RemoveLeftover(const std::string& path) {
  util::Result<util::OwnedDirectory> folder = util::OwnedDirectory::Open(path);
  if (!folder || !folder->IsPrivate() || flock(folder->fd(), LOCK_EX | LOCK_NB) != 0)
    return;
  for (const std::string& name : folder->Names()) {
    if (!IsRecording(name))
      continue;
    const std::string live = path + "/" + name;
    util::Result<util::OwnedDirectory> recording = util::OwnedDirectory::Open(live);
    const bool is_over = name == LiveDirectoryOf(kPassingRecording) && LiveRecorders(live).empty();
    if (!is_over || !recording || !RemoveLiveDirectory(*recording).ok())
      return;
  }
  RemoveFolder(*folder, path);
}

util::Status Copy(const std::string& path, const util::OwnedDirectory& folder) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const std::string bytes, util::ReadFile(path, kMostFileBytes));
  VRAMSCOPE_ASSIGN_OR_RETURN(const util::UniqueFd file,
                             folder.CreateFile(fs::path(path).filename().string()));
  return util::ReplaceContents(file, bytes);
}

}  // namespace

bool IsElsewhere(pid_t pid) {
  const std::string mounts = util::ReadProcLink(pid, "ns/mnt");
  struct stat ours {
  }, theirs{};
  if (stat("/", &ours) != 0 || stat(fmt::format("/proc/{}/root/", pid).c_str(), &theirs) != 0)
    return false;  // the kernel will say why it may not be looked at
  return mounts != util::ReadProcLink(getpid(), "ns/mnt") || ours.st_dev != theirs.st_dev ||
         ours.st_ino != theirs.st_ino;
}

SharedFolder::~SharedFolder() {
  if (!here_.empty())
    RemoveFolder(folder_, here_);
}

util::Result<SharedFolder> SharedFolder::Make(pid_t pid) {
  SharedFolder made;
  made.pid_ = pid;
  if (IsElsewhere(pid)) {
    VRAMSCOPE_RETURN_IF_ERROR(made.MakeThere(pid));
    return made;
  }
  std::error_code error;
  VRAMSCOPE_RETURN_IF_ERROR(made.MakeIn(fs::temp_directory_path(error).string()));
  made.here_ = made.folder_.path();
  made.there_ = made.here_;
  return made;
}

util::Status SharedFolder::MakeIn(const std::string& parent) {
  parent_here_ = parent;
  RemoveLeftovers();
  // Another attach takes a folder for a leftover until it is locked, even before it is opened.
  constexpr int kTries = 16;
  util::Status why = util::Status::Error(parent + ": another process removes new folders");
  for (int i = 0; i < kTries; ++i) {
    util::Result<util::OwnedDirectory> folder =
        util::OwnedDirectory::CreateTemporary(parent + "/" + kPrefix);
    if (!folder) {
      why = folder.status();
      continue;
    }
    folder_ = std::move(*folder);
    (void)flock(folder_.fd(), LOCK_EX);
    if (folder_.IsAtItsPath())
      return {};
  }
  return why;
}

util::Status SharedFolder::MakeThere(pid_t pid) {
  root_ = util::UniqueFd(
      open(fmt::format("/proc/{}/root", pid).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (const char* const place : kPlaces) {
    parent_ = OpenBelow(root_, place);
    if (!parent_.ok() || !AllowsCode(parent_) || !MakeIn(PathOf(parent_)).ok())
      continue;
    here_ = fmt::format("/proc/self/fd/{}", folder_.fd());
    there_ = place + folder_.path().substr(parent_here_.size());
    return {};
  }
  return util::Status::Error(
      fmt::format("process {} ({}) is in a container without a writable /tmp that permits "
                  "execution: mount one there, as in `docker run --tmpfs /tmp:exec`",
                  pid, util::ProcCommand(pid)));
}

std::string SharedFolder::shown() const {
  return is_elsewhere() ? fmt::format("/proc/{}/root{}", pid_, there_) : there_;
}

util::Result<std::string> SharedFolder::ShareFile(const std::string& path) {
  if (!is_elsewhere())
    return path;
  VRAMSCOPE_RETURN_IF_ERROR(Copy(path, folder_));
  return there_ + "/" + fs::path(path).filename().string();
}

util::Result<std::string> SharedFolder::SharePackage(const std::string& path) {
  if (!is_elsewhere() || path.empty())
    return path;
  VRAMSCOPE_ASSIGN_OR_RETURN(const util::OwnedDirectory copy,
                             util::OwnedDirectory::Create(here_ + "/" + kPackage));
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".py")
      VRAMSCOPE_RETURN_IF_ERROR(Copy(it->path().string(), copy));
  }
  return there_ + "/" + kPackage;
}

void SharedFolder::RemoveLeftovers() const {
  constexpr int kMostEntries = 10'000;
  std::error_code error;
  int entries = 0;
  for (fs::directory_iterator it(parent_here_, error), end;
       !error && it != end && ++entries < kMostEntries; it.increment(error)) {
    if (it->path().filename().string().starts_with(kPrefix))
      RemoveLeftover(it->path().string());
  }
}

}  // namespace vramscope::cli
