// SPDX-License-Identifier: Apache-2.0
#include "pipeline/live_recordings.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "pipeline/survivors.h"
#include "tables/row_of.h"
#include "util/file.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kLiveEnding[] = ".vram.d";

std::vector<std::string> LiveDirectoriesIn(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().string().ends_with(kLiveEnding) && IsLiveDirectory(it->path().string()))
      found.push_back(it->path().string());
  }
  return found;
}

}  // namespace

bool IsRecorded(const std::string& live_directory) {
  return LauncherIsAlive(live_directory) || !LiveRecorders(live_directory).empty();
}

util::Result<LiveRecordings> LiveRecordings::Make(const std::vector<std::string>& what) {
  LiveRecordings self;
  self.all_ = what.empty();
  for (const std::string& one : what) {
    if (IsFolder(one)) {
      self.folders_.push_back(one);
      continue;
    }
    VRAMSCOPE_ASSIGN_OR_RETURN(std::string directory, FindLiveDirectory(one));
    self.directories_.push_back(std::move(directory));
  }
  return self;
}

std::vector<std::string> LiveRecordings::Find(std::vector<std::string>* ended) const {
  std::vector<std::string> found = directories_;
  for (const std::string& folder : folders_) {
    for (std::string& directory : LiveDirectoriesIn(folder))
      found.push_back(std::move(directory));
  }
  if (all_) {
    for (const pid_t pid : util::AllProcesses()) {
      if (auto directory = LiveDirectoryOfProcess(pid))
        found.push_back(std::move(*directory));
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  std::erase_if(found, [&](const std::string& directory) {
    if (IsRecorded(directory))
      return false;
    if (std::count(directories_.begin(), directories_.end(), directory) > 0)
      ended->push_back(directory);
    return true;
  });
  return found;
}

RunningProcesses::RunningProcesses(const tables::Recording& recording,
                                   const std::string& live_directory)
    : tables_(recording.tables()), launcher_is_alive_(LauncherIsAlive(live_directory)) {
  for (const Recorder& recorder : LiveRecorders(live_directory))
    recorders_.push_back(recorder.pid);
}

// A process that is only sampled has no live file.
bool RunningProcesses::Has(tables::ProcessId process) const {
  const uint32_t pid = RowOf(tables_.processes, process).pid;
  if (!recorders_.empty())
    return std::find(recorders_.begin(), recorders_.end(), pid) != recorders_.end();
  return launcher_is_alive_ && IsRunning(static_cast<pid_t>(pid));
}

}  // namespace vramscope::cli
