// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/layout.h"
#include "trace/trace.h"
#include "util/file.h"
#include "util/owned_file.h"
#include "util/status.h"

// The live directory of a recording, and the file that it becomes.
namespace vramscope::cli {

// The launcher's live file in a live directory.
using format::kLauncherFile;

// Its presence in a live directory ends what accompanies a recording without a launcher.
inline constexpr char kStopFile[] = "stop";

// A recording may replace another recording or an empty file.
inline constexpr util::Content kFinishedContent = {
    "a vramscope trace", [](std::span<const uint8_t> start, uint64_t size_bytes) {
      return size_bytes == 0 ||
             (start.size() >= sizeof trace::kFinishedMagic &&
              std::memcmp(start.data(), trace::kFinishedMagic, sizeof trace::kFinishedMagic) == 0);
    }};

// The directory that `path` has while it is recorded, and the reverse.
std::string LiveDirectoryOf(const std::string& path);
std::string OutputOf(const std::string& live_directory);

// Whether `path` can become the output of a recording: its directory exists, and the file is
// missing, empty, or an older vramscope trace that is not being written. `being_finished` is the
// live directory that is about to become it, if any.
util::Status CheckOutput(const std::string& path, const std::string& being_finished = "");

// An error if a recording is made or finished in the directory `live`, or if another user
// owns that path.
util::Status CheckLiveDirectory(const std::string& live);

// Whether the directory is a recording's: it has our session file or live files, or nothing at all.
bool IsLiveDirectory(const std::string& path);

// Whether `path` can be written as a page beside the recording `output`.
util::Status CheckReportOutput(const std::string& path, const std::string& output);

// The older recording at `path`.
std::optional<util::FileIdentity> FindOldRecording(const std::string& path);

struct Recorder {
  uint32_t pid = 0;
  std::string command;
};
// The live directory that a process records into. Errors say why there is none.
util::Result<std::string> LiveDirectoryOfProcess(pid_t pid);

// The directory of a recording that is being made, by its name (NAME, NAME.vram or NAME.vram.d) or
// by the number of a recorded process.
util::Result<std::string> FindLiveDirectory(const std::string& what);

// Processes alive that hold a live file of this directory open.
std::vector<Recorder> LiveRecorders(const std::string& live_directory);

// Options to open a live directory of unknown state: if it is being recorded, up to now.
trace::OpenOptions UpToNow(const std::string& live_directory, trace::OpenOptions options);

// Whether `run` still records into the directory.
bool LauncherIsAlive(const std::string& live_directory);
// Its process, 0 if it has ended.
pid_t LauncherOf(const std::string& live_directory);

// Whether nothing can be made beside `path`, because its directory is not ours to write or its file
// system is read-only. False if the directory does not exist: that is a mistake.
bool IsReadOnlyPlace(const std::string& path);

// Has whatever samples for a recording without a launcher end, and waits for that.
void StopSidecar(const util::OwnedDirectory& directory);

// How a live directory is made, replaced and removed, and under which locks (docs/FILES.md).

// Facts about the recording that NAME.vram.d/session.json keeps for readers of the directory.
struct SessionRecord {
  std::string name;
  std::vector<std::string> command;
  std::string options;  // VRAMSCOPE_OPTIONS
  // Where XLA writes its dumps: trace::kXlaDumpFolder, which is made in the directory, or a path.
  std::string xla_dumps = {};
};
util::Status WriteSessionRecord(const util::OwnedDirectory& directory, const SessionRecord& record);

// The ids of the recording that the directory is of, none if it has none: its name may have been
// another's before. WriteSessionRecord() gives it one.
std::vector<std::string> SessionsOf(const std::string& live_directory);

// Makes the manifest (format::kManifestFile) with the names of the live files that are there,
// unless there is one.
util::Status WriteManifest(const util::OwnedDirectory& directory);

// The first entry of a live directory that does not belong to a recording of this user, and why:
// "x.vrl is a symbolic link". Otherwise "".
std::string ForeignEntry(const util::OwnedDirectory& directory);

// The content that identifies a live file or a past file of this directory.
const util::Content* LiveFileContent();

// Deletes what a killed process was just writing for the directory.
util::Status RemoveUnfinishedFiles(const util::OwnedDirectory& directory);

// Held by the process that makes the finished file of a live directory or replaces it.
struct FinishLock {
  util::UniqueFd file;   // not open where the file system has no locks, or no session file is there
  bool is_busy = false;  // another process has the lock
};
FinishLock TryFinishLock(const std::string& live_directory);

// Gives a directory that is complete the name `live`. An unfinished recording at that path is
// renamed to OlderOf(live), and is then `older`. An error if another process records there.
util::Status PlaceLiveDirectory(util::OwnedDirectory* directory,
                                const std::string& live,
                                std::optional<util::OwnedDirectory>* older);
std::string OlderOf(const std::string& live_directory);
// Removes what PlaceLiveDirectory() kept: the newer recording is whole.
util::Status RemoveOlder(const std::string& live_directory);

// Removes a live directory whose recording has been finished, or will never be: it loses its name
// in one step, and its files after that. If it contains a file that is not part of the recording,
// everything is kept, and the error says so.
util::Status RemoveLiveDirectory(util::OwnedDirectory& directory);

// Removes the directories beside `path` whose process was killed while it removed them.
void RemoveLeftAside(const std::string& path);

}  // namespace vramscope::cli
