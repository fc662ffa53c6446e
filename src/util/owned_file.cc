// SPDX-License-Identifier: Apache-2.0
#include "util/owned_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "util/file.h"

namespace vramscope::util {
namespace {

constexpr mode_t kFileMode = 0600;
constexpr mode_t kDirectoryMode = 0700;
constexpr char kTemporaryPrefix[] = ".vramscope-";
constexpr size_t kTemporaryBytes = sizeof kTemporaryPrefix + 16;
constexpr char kAsidePrefix[] = ".vramscope-gone-";
constexpr int kAttempts = 16;

FileIdentity IdentityOf(const struct stat& info) {
  return {.device = info.st_dev, .inode = info.st_ino};
}

// The directory that `path` names something in, and the name.
UniqueFd OpenParent(const std::string& path, std::string* name) {
  const size_t slash = path.rfind('/');
  *name = slash == std::string::npos ? path : path.substr(slash + 1);
  const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (name->empty() || *name == "." || *name == "..") {
    errno = EISDIR;
    return UniqueFd();
  }
  return UniqueFd(open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

std::string RandomName(const char* prefix = kTemporaryPrefix) {
  uint64_t number = 0;
  // Only a kernel at boot has not enough; then the address space's randomness must do, and O_EXCL.
  if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
    number = reinterpret_cast<uintptr_t>(&number) ^ (static_cast<uint64_t>(getpid()) << 48);
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(number));
  return std::string(prefix) + digits;
}

UniqueFd CreateIn(int directory, const std::string& name) {
  UniqueFd fd(openat(directory, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                     kFileMode));
  // For a umask that removes permissions. File systems without permissions refuse.
  if (fd.ok())
    (void)!fchmod(fd.get(), kFileMode);
  return fd;
}

std::string WhyNotOwned(const struct stat& info, uid_t owner) {
  if (S_ISLNK(info.st_mode))
    return "is a symbolic link";
  if (S_ISDIR(info.st_mode))
    return "is a directory";
  if (!S_ISREG(info.st_mode))
    return "is not a regular file";
  if (info.st_uid != owner)
    return "belongs to another user";
  if (info.st_nlink != 1)
    return "has several links";
  return "";
}

struct Owned {
  UniqueFd fd;  // not open where `why` says something, or no content was asked for
  FileIdentity identity;
  bool is_missing = false;
  std::string why;
};

Owned LookAt(int directory,
             const std::string& name,
             uid_t owner,
             const Content* content,
             int access) {
  Owned found;
  struct stat info {};
  if (fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    found.is_missing = errno == ENOENT;
    found.why = found.is_missing ? "" : "cannot be read: " + ErrnoText(errno);
    return found;
  }
  found.why = WhyNotOwned(info, owner);
  found.identity = IdentityOf(info);
  if (!found.why.empty() || (content == nullptr && access == O_PATH))
    return found;
  // Another file may be there by now: opening must not wait for it, and the file is checked again.
  UniqueFd fd(openat(
      directory, name.c_str(),
      (access == O_PATH ? O_RDONLY : access) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd.ok() || fstat(fd.get(), &info) != 0) {
    found.why = "cannot be read: " + ErrnoText(errno);
    return found;
  }
  found.why = WhyNotOwned(info, owner);
  found.identity = IdentityOf(info);
  if (found.why.empty() && content != nullptr) {
    std::array<uint8_t, kContentBytes> start{};
    const ssize_t got = pread(fd.get(), start.data(), start.size(), 0);
    if (got < 0)
      found.why = "cannot be read: " + ErrnoText(errno);
    else if (!content->holds({start.data(), static_cast<size_t>(got)},
                             static_cast<uint64_t>(info.st_size)))
      found.why = std::string("is not ") + content->name;
  }
  if (found.why.empty())
    found.fd = std::move(fd);
  return found;
}

bool IsAt(int directory, const std::string& name, const FileIdentity& identity) {
  struct stat info {};
  return fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         IdentityOf(info) == identity;
}

bool IsUnsupported(int error) {
  return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP;
}

// Renames if `to` does not exist; 0 or errno.
int RenameToFree(int directory, const std::string& from, const std::string& to) {
  if (renameat2(directory, from.c_str(), directory, to.c_str(), RENAME_NOREPLACE) == 0)
    return 0;
  if (!IsUnsupported(errno))
    return errno;
  // NFS: a link is made if there is none, or not at all.
  if (linkat(directory, from.c_str(), directory, to.c_str(), 0) == 0) {
    unlinkat(directory, from.c_str(), 0);
    return 0;
  }
  if (errno == EEXIST)
    return EEXIST;
  // Neither: a moment remains in which another could take the name.
  struct stat info {};
  if (fstatat(directory, to.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0)
    return EEXIST;
  return renameat(directory, from.c_str(), directory, to.c_str()) == 0 ? 0 : errno;
}

// Deletes `name` if it is this file. It is moved aside first, so that what another put in its place
// at this moment can be put back.
bool RemoveExactly(int directory, const std::string& name, const FileIdentity& identity) {
  const std::string aside = RandomName();
  if (!IsAt(directory, name, identity))
    return false;
  const int error = RenameToFree(directory, name, aside);
  // A full disk may have no room for another name.
  if (error == ENOSPC || error == EDQUOT)
    return unlinkat(directory, name.c_str(), 0) == 0;
  if (error != 0)
    return false;
  if (IsAt(directory, aside, identity))
    return unlinkat(directory, aside.c_str(), 0) == 0;
  (void)RenameToFree(directory, aside, name);
  return false;
}

}  // namespace

Result<UniqueFd> CreateFile(const std::string& path) {
  std::string name;
  const UniqueFd parent = OpenParent(path, &name);
  UniqueFd file = parent.ok() ? CreateIn(parent.get(), name) : UniqueFd();
  if (!file.ok())
    return FileError(path, "cannot be made", errno);
  return file;
}

void GiveSpaceBack(const UniqueFd& file) {
  struct stat info {};
  constexpr off_t kFrom = kContentBytes;
  if (fstat(file.get(), &info) == 0 && info.st_size > kFrom)
    (void)!fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kFrom,
                     info.st_size - kFrom);
}

int PunchHole(const UniqueFd& file, uint64_t offset, uint64_t size_bytes) {
  const int done = fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                             static_cast<off_t>(offset), static_cast<off_t>(size_bytes));
  return done == 0 ? 0 : errno;
}

int ReserveSpace(int fd, uint64_t offset, uint64_t size_bytes) {
  return posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(size_bytes));
}

Status ReplaceContents(const UniqueFd& file, std::string_view text) {
  if (ftruncate(file.get(), 0) != 0 ||
      pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return Status::Error(ErrnoText(errno));
  }
  return {};
}

std::string WhyNotReplaceable(const std::string& path, const Content* content) {
  std::string name;
  const UniqueFd parent = OpenParent(path, &name);
  if (!parent.ok())
    return errno == EISDIR ? "is a directory" : "cannot be written: " + ErrnoText(errno);
  return LookAt(parent.get(), name, geteuid(), content, O_PATH).why;
}

std::optional<FileIdentity> FindFile(const std::string& path, const Content& content) {
  std::string name;
  const UniqueFd parent = OpenParent(path, &name);
  if (!parent.ok())
    return std::nullopt;
  const Owned file = LookAt(parent.get(), name, geteuid(), &content, O_PATH);
  return file.fd.ok() ? std::optional(file.identity) : std::nullopt;
}

bool RemoveFile(const std::string& path, const FileIdentity& identity) {
  std::string name;
  const UniqueFd parent = OpenParent(path, &name);
  return parent.ok() && RemoveExactly(parent.get(), name, identity);
}

Result<OwnedDirectory> OwnedDirectory::Open(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!fd.ok() || fstat(fd.get(), &info) != 0) {
    return Status::Error(path + ": " +
                         (errno == ELOOP || errno == ENOTDIR
                              ? "is not a directory, or is a link"
                              : "cannot be opened: " + ErrnoText(errno)));
  }
  if (info.st_uid != geteuid())
    return Status::Error(path + ": belongs to another user");
  return OwnedDirectory(path, std::move(fd), info.st_uid);
}

Result<OwnedDirectory> OwnedDirectory::Create(const std::string& path) {
  std::string name;
  const UniqueFd parent = OpenParent(path, &name);
  if (!parent.ok() || mkdirat(parent.get(), name.c_str(), kDirectoryMode) != 0)
    return FileError(path, "cannot be made", errno);
  UniqueFd fd(openat(parent.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!fd.ok() || fstat(fd.get(), &info) != 0)
    return FileError(path, "cannot be opened", errno);
  if (info.st_uid != geteuid()) {
    // Another's, in place of the one just made; unless this file system shows another as the owner
    // of all that we make (NFS does so to root).
    const std::string temporary = RandomName();
    const UniqueFd file = CreateIn(fd.get(), temporary);
    struct stat ours {};
    const bool is_shown_so =
        file.ok() && fstat(file.get(), &ours) == 0 && ours.st_uid == info.st_uid;
    if (file.ok())
      unlinkat(fd.get(), temporary.c_str(), 0);
    if (!is_shown_so)
      return Status::Error(path + ": cannot be created: another user keeps replacing it");
  }
  (void)!fchmod(fd.get(), kDirectoryMode);
  return OwnedDirectory(path, std::move(fd), info.st_uid);
}

Result<OwnedDirectory> OwnedDirectory::OpenOrCreatePrivate(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 && errno == ENOENT) {
    // Another process of this user may be faster.
    if (Result<OwnedDirectory> made = Create(path))
      return made;
  }
  Result<OwnedDirectory> directory = Open(path);
  if (directory && !directory->IsPrivate())
    return Status::Error(path + ": other users can enter it: chmod 700 it");
  return directory;
}

Result<OwnedDirectory> OwnedDirectory::OpenBelow(const std::string& name) const {
  const std::string path = path_ + "/" + name;
  UniqueFd fd(openat(fd_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!fd.ok() || fstat(fd.get(), &info) != 0)
    return FileError(path, "is not a directory, or cannot be opened", errno);
  if (info.st_uid != owner_)
    return Status::Error(path + ": belongs to another user");
  return OwnedDirectory(path, std::move(fd), owner_);
}

Result<OwnedDirectory> OwnedDirectory::CreateBelow(const std::string& name) const {
  if (mkdirat(fd_.get(), name.c_str(), kDirectoryMode) != 0)
    return FileError(path_ + "/" + name, "cannot be made", errno);
  Result<OwnedDirectory> made = OpenBelow(name);
  if (made)
    (void)!fchmod(made->fd(), kDirectoryMode);
  return made;
}

bool OwnedDirectory::RemoveEmpty(const std::string& name) const {
  return unlinkat(fd_.get(), name.c_str(), AT_REMOVEDIR) == 0;
}

Result<OwnedDirectory> OwnedDirectory::CreateTemporary(const std::string& prefix) {
  std::string path = prefix + "XXXXXX";
  if (mkdtemp(path.data()) == nullptr)
    return FileError(path, "cannot be made", errno);
  return Open(path);
}

Result<OwnedDirectory> OwnedDirectory::CreateBeside(const std::string& path) {
  const size_t slash = path.rfind('/');
  Result<OwnedDirectory> made =
      Create((slash == std::string::npos ? "" : path.substr(0, slash + 1)) + RandomName());
  const int error = errno;
  return made ? std::move(made) : FileError(path, "cannot be made", error);
}

bool OwnedDirectory::IsPrivate() const {
  struct stat info {};
  return fstat(fd_.get(), &info) == 0 && (info.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

bool OwnedDirectory::IsAtItsPath() const {
  struct stat here {};
  struct stat named {};
  return fstat(fd_.get(), &here) == 0 && lstat(path_.c_str(), &named) == 0 &&
         IdentityOf(here) == IdentityOf(named);
}

std::vector<std::string> OwnedDirectory::Names() const {
  std::vector<std::string> names;
  // A descriptor of its own: the place in the directory belongs to it.
  const int own = openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const listing = own < 0 ? nullptr : fdopendir(own);
  if (listing == nullptr) {
    if (own >= 0)
      close(own);
    return names;
  }
  while (const dirent* const entry = readdir(listing)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..")
      names.emplace_back(name);
  }
  closedir(listing);
  std::sort(names.begin(), names.end());
  return names;
}

std::string OwnedDirectory::Identity() const {
  struct statx info {};
  if (statx(fd_.get(), "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &info) != 0)
    return "";
  const std::string number = std::to_string(info.stx_ino);
  if ((info.stx_mask & STATX_BTIME) != 0) {
    return number + "." + std::to_string(info.stx_btime.tv_sec) + "." +
           std::to_string(info.stx_btime.tv_nsec);
  }
  // In memory, mostly (tmpfs before Linux 6.6): it lasts no longer than the machine is up.
  const Result<std::string> boot = ReadFile("/proc/sys/kernel/random/boot_id", 100);
  return boot ? number + "." + boot->substr(0, boot->find('\n')) : "";
}

Result<UniqueFd> OwnedDirectory::CreateFile(const std::string& name) const {
  UniqueFd file = CreateIn(fd_.get(), name);
  if (!file.ok())
    return FileError(path_ + "/" + name, "cannot be made", errno);
  return file;
}

Result<UniqueFd> OwnedDirectory::Open(const std::string& name, const Content* content) const {
  Owned file = LookAt(fd_.get(), name, owner_, content, O_RDWR);
  if (file.is_missing)
    return Status::Error(path_ + "/" + name + ": does not exist");
  if (!file.why.empty())
    return Status::Error(path_ + "/" + name + ": " + file.why);
  return std::move(file.fd);
}

bool OwnedDirectory::Has(const std::string& name) const {
  struct stat info {};
  return fstatat(fd_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

bool OwnedDirectory::StandsFor(const std::string& name, const UniqueFd& file) const {
  struct stat info {};
  return fstat(file.get(), &info) == 0 && IsAt(fd_.get(), name, IdentityOf(info));
}

bool OwnedDirectory::Remove(const std::string& name, const UniqueFd& file) const {
  struct stat info {};
  return fstat(file.get(), &info) == 0 && RemoveExactly(fd_.get(), name, IdentityOf(info));
}

bool OwnedDirectory::CreateLink(const std::string& name, const std::string& target) const {
  return symlinkat(target.c_str(), fd_.get(), name.c_str()) == 0;
}

bool OwnedDirectory::HasLink(const std::string& name) const {
  struct stat info {};
  return fstatat(fd_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISLNK(info.st_mode) && info.st_uid == owner_;
}

bool OwnedDirectory::RemoveLink(const std::string& name) const {
  struct stat info {};
  return HasLink(name) && fstatat(fd_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         RemoveExactly(fd_.get(), name, IdentityOf(info));
}

std::string OwnedDirectory::LinkTarget(const std::string& name) const {
  char target[PATH_MAX];
  const ssize_t size =
      HasLink(name) ? readlinkat(fd_.get(), name.c_str(), target, sizeof target) : -1;
  return size > 0 ? std::string(target, static_cast<size_t>(size)) : "";
}

int OwnedDirectory::MoveTo(const std::string& path) {
  std::string from;
  std::string to;
  const UniqueFd parent = OpenParent(path_, &from);
  if (!parent.ok() || !OpenParent(path, &to).ok())
    return errno;
  struct stat info {};
  if (fstat(fd_.get(), &info) != 0)
    return errno;
  const FileIdentity identity = IdentityOf(info);
  if (!IsAt(parent.get(), from, identity))
    return ENOENT;
  // A file system that cannot keep a name also reports this error if the target is a directory with
  // entries.
  if (const int error = RenameToFree(parent.get(), from, to); error != 0)
    return error == ENOTEMPTY ? EEXIST : error;
  if (!IsAt(parent.get(), to, identity)) {
    // Another's, which took the place at this moment.
    (void)RenameToFree(parent.get(), to, from);
    return ENOENT;
  }
  path_ = path;
  return 0;
}

int OwnedDirectory::MoveAside() {
  return MoveTo(path_.substr(0, path_.rfind('/') + 1) + RandomName(kAsidePrefix));
}

bool OwnedDirectory::IsAsideName(std::string_view name) {
  return name.starts_with(kAsidePrefix) && name.size() == sizeof kAsidePrefix - 1 + 16;
}

Status OwnedDirectory::RemoveSelf() {
  std::string name;
  const UniqueFd parent = OpenParent(path_, &name);
  if (!parent.ok())
    return FileError(path_, "cannot be removed", errno);
  if (!IsAtItsPath())
    return Status::Error(path_ + ": cannot be removed: another file took its place");
  if (unlinkat(parent.get(), name.c_str(), AT_REMOVEDIR) != 0)
    return FileError(path_, "cannot be removed", errno);
  return {};
}

// Files that are not whole yet, for the handler of a signal. A file is here before it is made and
// until it is gone: at no moment can a signal leave it behind.
struct AtomicFile::Slot {
  std::atomic<int> directory{-1};  // stored last, and first taken back
  std::atomic<bool> is_used{false};
  char name[kTemporaryBytes] = {};

  static Slot* Take(int directory, const std::string& name);
  void GiveBack() {
    directory = -1;
    is_used = false;
  }
  static inline std::array<Slot, 8>* All() {
    static std::array<Slot, 8> slots;
    return &slots;
  }
};

AtomicFile::Slot* AtomicFile::Slot::Take(int directory, const std::string& name) {
  for (Slot& slot : *All()) {
    if (slot.is_used.exchange(true))
      continue;
    std::memcpy(slot.name, name.c_str(), name.size() + 1);
    slot.directory = directory;
    return &slot;
  }
  return nullptr;
}

bool AtomicFile::IsTemporaryName(std::string_view name) {
  return name.starts_with(kTemporaryPrefix) && name.size() == kTemporaryBytes - 1;
}

void AtomicFile::DiscardAll() {
  for (const Slot& slot : *Slot::All()) {
    if (const int directory = slot.directory; directory >= 0)
      unlinkat(directory, slot.name, 0);
  }
}

AtomicFile::AtomicFile(std::string path, std::string name, UniqueFd directory, UniqueFd fd)
    : path_(std::move(path)),
      name_(std::move(name)),
      directory_(std::move(directory)),
      fd_(std::move(fd)) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      name_(std::move(other.name_)),
      temporary_(std::exchange(other.temporary_, "")),
      directory_(std::move(other.directory_)),
      fd_(std::move(other.fd_)),
      replaces_(other.replaces_),
      replaced_(other.replaced_),
      offset_(other.offset_),
      slot_(std::exchange(other.slot_, nullptr)) {}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty())
    unlinkat(directory_.get(), temporary_.c_str(), 0);
  if (slot_ != nullptr)
    slot_->GiveBack();
}

Result<AtomicFile> AtomicFile::Create(const std::string& path, const Content* content) {
  std::string name;
  UniqueFd directory = OpenParent(path, &name);
  if (!directory.ok())
    return FileError(path, "cannot be written", errno);
  return CreateAt(std::move(directory), path, std::move(name), content);
}

Result<AtomicFile> AtomicFile::Create(const OwnedDirectory& directory,
                                      const std::string& name,
                                      const Content* content) {
  const std::string path = directory.path() + "/" + name;
  UniqueFd own(fcntl(directory.fd(), F_DUPFD_CLOEXEC, 0));
  if (!own.ok())
    return FileError(path, "cannot be written", errno);
  return CreateAt(std::move(own), path, name, content);
}

Result<AtomicFile> AtomicFile::CreateAt(UniqueFd directory,
                                        const std::string& path,
                                        std::string name,
                                        const Content* content) {
  const Owned old = LookAt(directory.get(), name, geteuid(), content, O_PATH);
  if (!old.why.empty()) {
    return Status::Error(path + ": cannot be written: it " + old.why +
                         ": remove it, or choose another name");
  }
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string temporary = RandomName();
    Slot* const slot = Slot::Take(directory.get(), temporary);
    UniqueFd fd = CreateIn(directory.get(), temporary);
    if (!fd.ok()) {
      const int error = errno;
      if (slot != nullptr)
        slot->GiveBack();
      errno = error;
      if (error == EEXIST)
        continue;
      break;
    }
    AtomicFile file(path, std::move(name), std::move(directory), std::move(fd));
    file.slot_ = slot;
    file.temporary_ = std::move(temporary);
    file.replaces_ = !old.is_missing;
    file.replaced_ = old.identity;
    return file;
  }
  return FileError(path, "cannot be written", errno);
}

Status AtomicFile::Write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_.get(), bytes.data(), bytes.size());
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

Status AtomicFile::ShareForReading() {
  if (fchmod(fd_.get(), S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH) != 0)
    return FileError(path_, "cannot be shared", errno);
  return {};
}

Status AtomicFile::Appear() {
  const int directory = directory_.get();
  const auto foreign = [this] {
    return Status::Error(path_ +
                         ": another program created it meanwhile, and it is unchanged: remove it, "
                         "or choose another name");
  };
  if (replaces_ && !IsAt(directory, name_, replaced_)) {
    struct stat info {};
    if (fstatat(directory, name_.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0)
      return foreign();
    replaces_ = false;  // removed meanwhile
  }
  if (!replaces_) {
    const int error = RenameToFree(directory, temporary_, name_);
    if (error == EEXIST)
      return foreign();
    if (error != 0)
      return FileError(path_, "cannot be written", error);
    temporary_.clear();
    return {};
  }
  if (renameat2(directory, temporary_.c_str(), directory, name_.c_str(), RENAME_EXCHANGE) == 0) {
    if (IsAt(directory, temporary_, replaced_)) {
      unlinkat(directory, temporary_.c_str(), 0);
      temporary_.clear();
      return {};
    }
    // Another took the place between the look and the exchange.
    (void)!renameat2(directory, temporary_.c_str(), directory, name_.c_str(), RENAME_EXCHANGE);
    return foreign();
  }
  // A file system that cannot exchange: a moment remains in which another could take the name.
  if (!IsUnsupported(errno) ||
      renameat(directory, temporary_.c_str(), directory, name_.c_str()) != 0) {
    return FileError(path_, "cannot be written", errno);
  }
  temporary_.clear();
  return {};
}

Status AtomicFile::Commit() {
  // Without fsync a power cut soon after the rename can leave an empty file under the good name.
  if (fsync(fd_.get()) != 0 && errno != EINVAL && errno != EROFS)
    return FileError(path_, "cannot be written", errno);
  VRAMSCOPE_RETURN_IF_ERROR(Appear());
  fd_ = UniqueFd();
  // The name too is on disk before what the file was made of may go. If others may not read the
  // directory, the file system does that in its own time.
  if (const UniqueFd directory(openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      directory.ok())
    (void)fsync(directory.get());
  return {};
}

}  // namespace vramscope::util
