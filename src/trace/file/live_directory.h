// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/trace.h"
#include "util/file.h"
#include "util/status.h"

namespace vramscope::trace {

// The session as the launcher describes it in session.json. Every part is optional.
struct SessionJson {
  std::string name;
  std::string version;
  std::vector<std::string> command;
  int64_t start_wall_ns = 0;
  std::string host;
  std::string directory;  // util::OwnedDirectory::Identity() of the one that it was written into
  std::string xla_dumps;  // kXlaDumpFolder in the directory, or a path
  std::vector<std::pair<std::string, std::string>> notes;  // all other keys, their values as text
};

// Reads as much of `text` as is JSON: a damaged file loses what comes after the damage, no more.
SessionJson ParseSessionJson(std::string_view text);

// Why no file that the recording in `directory` names (programs, sources) may be read: its names
// are anybody's, unless this user recorded it, on this machine. "" if it is so.
std::string WhyNamedFilesAreNotRead(const std::string& directory,
                                    const SessionJson& session,
                                    std::span<const std::string> live_files);

// A live directory that is read. A process that gives space back in it (docs/FORMAT.md), or removes
// it after its recording is finished, holds an exclusive lock. Readers hold a shared lock.
//
//   NAME.vram.d/  session.json   the launcher's description of the session
//                 manifest       the names of the live files, so that missing ones are noticed
//                 *.vrl *.past   a live file a process (live_file.h), and what a ring keeps of it
class LiveDirectory {
 public:
  // Waits for the lock. On a file system without locks it does not wait.
  explicit LiveDirectory(const std::string& path);

  // False if the path leads to another directory by now, or nowhere: the recording was finished.
  bool IsAtItsPath() const;
  // The lock lasts until the result is closed.
  util::UniqueFd TakeLock() { return std::move(fd_); }

 private:
  std::string path_;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  util::UniqueFd fd_;
};

// The files of a live directory in a stable order.
util::Result<std::vector<std::string>> ListLiveFiles(const std::string& directory);

// The names of the live files that the recording has, as their processes listed them
// (format::kManifestFile). Must be read before the files are listed.
std::set<std::string> ReadManifest(const std::string& directory);

// Counts the files that the manifest has and the directory has not.
void AddMissing(const std::set<std::string>& missing, SessionJson* session, LossCounter* losses);

// Counts the processes that could not make a file in the directory (format::kUnrecordedExtension).
void AddUnrecorded(const std::string& directory, SessionJson* session, LossCounter* losses);

// Size of a file, nothing if there is none.
std::optional<uint64_t> SizeOf(const std::string& path);

}  // namespace vramscope::trace
