// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/layout.h"
#include "trace/trace.h"
#include "util/owned_file.h"
#include "util/status.h"

// The live directory of a recording, and the file that it becomes.
namespace vramscope::cli {

// The launcher's live file in a live directory.
using format::kLauncherFile;

// Its presence in a live directory ends what accompanies a recording without a launcher.
inline constexpr char kStopFile[] = "stop";

// The directory that stands in for `path` while it is recorded, and the reverse.
std::string LiveDirectoryOf(const std::string& path);
std::string OutputOf(const std::string& live_directory);

// Whether `path` can become the output of a recording: its directory exists, and what stands there
// is nothing, an empty file, or an older vramscope trace that no one is writing. `being_finished`
// is the live directory that is about to become it, if any.
util::Status CheckOutput(const std::string& path, const std::string& being_finished = "");

// An error where a recording is made or finished in the directory `live`, or where what stands
// there is none of this user's.
util::Status CheckLiveDirectory(const std::string& live);

// Whether the directory is a recording's: it has our session file or live files, or nothing at all.
bool IsLiveDirectory(const std::string& path);

// Whether `path` can be written as a page beside the recording `output`.
util::Status CheckReportOutput(const std::string& path, const std::string& output);

// Which older recording stands at `path`.
std::optional<util::FileIdentity> FindOldRecording(const std::string& path);

struct Recorder {
  uint32_t pid = 0;
  std::string command;
};
// The live directory that a process records into. Errors say why there is none.
util::Result<std::string> LiveDirectoryOfProcess(pid_t pid);

// Processes alive that hold a live file of this directory open.
std::vector<Recorder> LiveRecorders(const std::string& live_directory);

// How to open a live directory of which nothing is known: where it is being recorded, up to now.
trace::OpenOptions UpToNow(const std::string& live_directory, trace::OpenOptions options);

// Whether `run` still records into the directory.
bool LauncherIsAlive(const std::string& live_directory);

// Whether nothing can be made beside `path`, because its directory is not ours to write or its file
// system is read-only. False where the directory does not exist: that is a mistake.
bool IsReadOnlyPlace(const std::string& path);

// Has whatever samples for a recording without a launcher end, and waits for that.
void StopSidecar(const util::OwnedDirectory& directory);

}  // namespace vramscope::cli
