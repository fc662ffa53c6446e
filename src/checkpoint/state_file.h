// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "util/owned_file.h"
#include "util/status.h"

// The facts that `resume` needs about a process whose device memory `yield` took. It is in a
// directory that only this user can enter, and holds without the recording. The directory has a
// random name in a folder that all users share, so other users cannot take the name. Its owner and
// mode identify it in every session of the user, whatever the environment.
namespace vramscope::cli {

struct YieldedDevice {
  std::string uuid;
  uint64_t bytes = 0;  // to be there when the process comes back
};

struct YieldState {
  uint64_t start_ticks = 0;  // of the process: its number is used again
  bool yielded = false;      // false: it was being locked
  int64_t wall_seconds = 0;  // since 1970
  uint64_t bytes = 0;        // freed
  std::string live_directory;
  std::vector<YieldedDevice> devices;
};

std::string FormatYieldState(const YieldState& state);
std::optional<YieldState> ParseYieldState(const std::string& text);

// The file of one process, locked as long as the object lives: one `vramscope` at a time is at work
// on a process.
class StateFile {
 public:
  // Opens it, and makes it if there is none. `shared`: the folders to look in, the best first.
  static util::Result<std::unique_ptr<StateFile>> Open(pid_t pid,
                                                       const std::vector<std::string>& shared = {
                                                           "/tmp", "/dev/shm"});
  // Removes a file in which nothing was saved.
  ~StateFile();
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  // Its content; none if it is damaged or belongs to another process with this number.
  std::optional<YieldState> Read(uint64_t start_ticks) const;
  util::Status Save(const YieldState& state);
  // Removes the directory too where it becomes empty.
  void Remove();

 private:
  StateFile(util::OwnedDirectory directory, util::UniqueFd file, std::string name)
      : directory_(std::move(directory)), file_(std::move(file)), name_(std::move(name)) {}

  util::OwnedDirectory directory_;
  const util::UniqueFd file_;
  const std::string name_;
};

}  // namespace vramscope::cli
