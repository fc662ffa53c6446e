// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "util/file.h"
#include "util/status.h"

// The only place outside the probe that opens for writing, renames and deletes
// (tools/check_writes.py). It touches only files that this run made, or that are provably ours: a
// regular file of this user, with one link, whose first bytes are a recording's if a recording is
// expected. Everything is named relative to an open directory, no link is followed, and what is
// checked is the descriptor and not the name. New files are for this user alone, whatever the
// umask.
namespace vramscope::util {

// Identifies a file independent of its name.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

// The content that a file must have to be ours.
struct Content {
  const char* name;  // "a vramscope trace"
  // Whether a file of this size that begins with these bytes is one; at most kContentBytes are
  // passed.
  bool (*holds)(std::span<const uint8_t> start, uint64_t size_bytes);
};
inline constexpr size_t kContentBytes = 4096;

// Makes a file that was not there, open for reading and writing.
Result<UniqueFd> CreateFile(const std::string& path);

// Frees the blocks of an open file, whose size stays, but for what Content looks at.
void GiveSpaceBack(const UniqueFd& file);
// Frees the blocks of a part of an open file. 0 or errno.
int PunchHole(const UniqueFd& file, uint64_t offset, uint64_t size_bytes);
// Reserves blocks for an open file, which grows to them. 0 or errno.
int ReserveSpace(int fd, uint64_t offset, uint64_t size_bytes);

// Puts `text` in place of what an open file holds.
Status ReplaceContents(const UniqueFd& file, std::string_view text);

// Why the file at `path` may not be replaced ("is a symbolic link"). "" if it does not exist, or is
// a file of this user that holds `content` (nullptr: anything).
std::string WhyNotReplaceable(const std::string& path, const Content* content);

// The file at `path`, if it is this user's and holds `content`.
std::optional<FileIdentity> FindFile(const std::string& path, const Content& content);

// Deletes this file; false if `path` names another file, or none.
bool RemoveFile(const std::string& path, const FileIdentity& identity);

// A directory of this user, held open: what is at its path later does not matter.
class OwnedDirectory {
 public:
  OwnedDirectory() = default;
  // An existing one, and no link to one.
  static Result<OwnedDirectory> Open(const std::string& path);
  // A directory that this call makes.
  static Result<OwnedDirectory> Create(const std::string& path);
  // An existing one that other users cannot enter, or one that this call makes.
  static Result<OwnedDirectory> OpenOrCreatePrivate(const std::string& path);
  // An existing directory in this one, and one that this call makes there.
  Result<OwnedDirectory> OpenBelow(const std::string& name) const;
  Result<OwnedDirectory> CreateBelow(const std::string& name) const;
  // A directory with a random name that begins with `prefix`, a path.
  static Result<OwnedDirectory> CreateTemporary(const std::string& prefix);
  // A directory with a random hidden name, beside `path`.
  static Result<OwnedDirectory> CreateBeside(const std::string& path);

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  // Whether only this user can reach what is in it.
  bool IsPrivate() const;
  // Whether the path still leads here.
  bool IsAtItsPath() const;
  std::vector<std::string> Names() const;
  // Identifies it among all of its copies, and cannot be predicted by a sender: its number and when
  // it was made. "" if the file system does not report that.
  std::string Identity() const;

  // Makes a file that was not there, open for reading and writing.
  Result<UniqueFd> CreateFile(const std::string& name) const;
  // Opens a regular file of this user with one link that holds `content` (nullptr: anything), for
  // reading and writing. Any other kind of file is an error at once: opening a FIFO must not wait
  // for its other end.
  Result<UniqueFd> Open(const std::string& name, const Content* content) const;
  bool Has(const std::string& name) const;  // whatever it is
  // Whether `name` still names `file`.
  bool StandsFor(const std::string& name, const UniqueFd& file) const;
  // Deletes `file`, if `name` still names it.
  bool Remove(const std::string& name, const UniqueFd& file) const;
  bool CreateLink(const std::string& name, const std::string& target) const;
  bool HasLink(const std::string& name) const;  // a symbolic link of this user's
  bool RemoveLink(const std::string& name) const;
  bool RemoveEmpty(const std::string& name) const;        // a directory
  std::string LinkTarget(const std::string& name) const;  // "" if it is no such link
  // Renames the directory to `path`, an unused name in the same parent. 0 or errno; ENOENT if it is
  // not at its path any more.
  int MoveTo(const std::string& path);
  // Renames the directory to a random name that IsAsideName(): it is to be deleted. 0 or errno.
  int MoveAside();
  static bool IsAsideName(std::string_view name);
  // Deletes the directory itself. Fails where it is not empty, or not at its path any more.
  Status RemoveSelf();

 private:
  OwnedDirectory(std::string path, UniqueFd fd, uid_t owner)
      : path_(std::move(path)), fd_(std::move(fd)), owner_(owner) {}

  std::string path_;
  UniqueFd fd_;
  uid_t owner_ = 0;  // as the file system shows this user's files
};

// A file that appears under its name only when it is whole: written under a random name in the same
// directory, then renamed. It replaces exactly the file that was there when it was begun. Dropped
// unless Commit() was called. Move-only.
class AtomicFile {
 public:
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  // The file at `path` must be this user's and hold `content` (nullptr: anything).
  static Result<AtomicFile> Create(const std::string& path, const Content* content = nullptr);
  // The same in an open directory, wherever that is by now.
  static Result<AtomicFile> Create(const OwnedDirectory& directory,
                                   const std::string& name,
                                   const Content* content);
  Status Write(std::span<const uint8_t> bytes);
  Status Write(std::string_view text);
  // Bytes written so far.
  uint64_t offset() const { return offset_; }
  // For a writer that says itself where its bytes go.
  int fd() const { return fd_.get(); }
  // Lets every user read it, whatever the umask: it is for a program of another user.
  Status ShareForReading();
  Status Commit();

  // Whether a file of this name may be one that was never committed: its writer was killed.
  static bool IsTemporaryName(std::string_view name);
  // Deletes what is not whole yet, in a process that is about to end. Async-signal-safe.
  static void DiscardAll();

 private:
  struct Slot;
  AtomicFile(std::string path, std::string name, UniqueFd directory, UniqueFd fd);
  static Result<AtomicFile> CreateAt(UniqueFd directory,
                                     const std::string& path,
                                     std::string name,
                                     const Content* content);
  Status Appear();

  std::string path_;
  std::string name_;       // the last part of path_
  std::string temporary_;  // in the same directory
  UniqueFd directory_;
  UniqueFd fd_;
  bool replaces_ = false;
  FileIdentity replaced_;
  uint64_t offset_ = 0;
  Slot* slot_ = nullptr;
};

}  // namespace vramscope::util
