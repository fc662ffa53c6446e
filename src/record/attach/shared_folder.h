// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "util/file.h"
#include "util/owned_file.h"
#include "util/status.h"

namespace vramscope::cli {

// Whether the process has another root directory than this one, or other mounts: a container.
bool IsElsewhere(pid_t pid);

// A new directory that only this user can enter. This process and the target exchange files in it.
// It is in the place for temporary files; if the target is in a container, in the container's.
//
//   this process     /tmp/vramscope-attach-x     /proc/self/fd/7
//   the target       /tmp/vramscope-attach-x     /tmp/vramscope-attach-x
//
// The path with a descriptor is valid after the target has ended, too.
//
// It is locked while its object lives. Make() removes those that a killed process left, but not if
// they contain a recording.
class SharedFolder {
 public:
  SharedFolder() = default;
  SharedFolder(SharedFolder&&) = default;
  SharedFolder& operator=(SharedFolder&&) = default;
  // Removes everything but recordings.
  ~SharedFolder();

  static util::Result<SharedFolder> Make(pid_t pid);

  bool is_elsewhere() const { return root_.ok(); }
  const std::string& here() const { return here_; }
  const std::string& there() const { return there_; }
  // For messages: a path that other processes of this machine can use while the target runs.
  std::string shown() const;
  // The path by which the target can read this file, or the modules of this Python package.
  util::Result<std::string> ShareFile(const std::string& path);
  util::Result<std::string> SharePackage(const std::string& path);
  void RemoveLeftovers() const;

 private:
  util::Status MakeIn(const std::string& parent);
  util::Status MakeThere(pid_t pid);

  pid_t pid_ = 0;
  util::UniqueFd root_;    // of the target, if it is another one
  util::UniqueFd parent_;  // of the folder there
  std::string parent_here_;
  util::OwnedDirectory folder_;
  std::string here_;
  std::string there_;
};

// A recording that may be removed with its folder has this name.
inline constexpr char kPassingRecording[] = "dump.vram";

}  // namespace vramscope::cli
