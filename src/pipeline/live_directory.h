// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "util/file.h"
#include "util/owned_file.h"
#include "util/status.h"

// How a live directory is made, replaced and removed, and under which locks (docs/FILES.md).
namespace vramscope::cli {

// What the recording is of, as NAME.vram.d/session.json keeps it for whoever reads the directory.
struct SessionRecord {
  std::string name;
  std::vector<std::string> command;
  std::string options;  // VRAMSCOPE_OPTIONS
};
util::Status WriteSessionRecord(const util::OwnedDirectory& directory, const SessionRecord& record);

// The ids of the recording that the directory is of, none where it has none: its name may have been
// another's before. WriteSessionRecord() gives it one.
std::vector<std::string> SessionsOf(const std::string& live_directory);

// Makes the manifest (format::kManifestFile) with the names of the live files that are there,
// unless there is one.
util::Status WriteManifest(const util::OwnedDirectory& directory);

// The first entry of a live directory that is no part of a recording of this user, and why: "x.vrl
// is a symbolic link". "" where there is none.
std::string ForeignEntry(const util::OwnedDirectory& directory);

// What a live file, or a past file, of this directory must hold to be the recording's.
const util::Content* LiveFileContent();

// Deletes what a killed process was just writing for the directory.
util::Status RemoveUnfinishedFiles(const util::OwnedDirectory& directory);

// The lock of whoever makes the finished file of a live directory, or puts another in its place.
struct FinishLock {
  util::UniqueFd file;   // not open where the file system has no locks, or no session file is there
  bool is_busy = false;  // another process has the lock
};
FinishLock TryFinishLock(const std::string& live_directory);

// Gives a directory that is complete the name `live`. A recording there that nobody finished gets
// the name OlderOf(live), and is then `older`. An error where another process records there.
util::Status PlaceLiveDirectory(util::OwnedDirectory* directory,
                                const std::string& live,
                                std::optional<util::OwnedDirectory>* older);
std::string OlderOf(const std::string& live_directory);
// Removes what PlaceLiveDirectory() kept: the newer recording is whole.
util::Status RemoveOlder(const std::string& live_directory);

// Removes a live directory whose recording has been finished, or will never be: it loses its name
// in one step, and its files after that. Where something in it is no part of the recording, all of
// it is left, and the error says so.
util::Status RemoveLiveDirectory(util::OwnedDirectory& directory);

// Removes the directories beside `path` whose process was killed while it removed them.
void RemoveLeftAside(const std::string& path);

}  // namespace vramscope::cli
