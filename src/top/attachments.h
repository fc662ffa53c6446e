// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "util/file.h"

namespace vramscope::cli {

// Captures what this process and `vramscope attach` write to stderr, while the screen is shown.
class CapturedErrors {
 public:
  CapturedErrors();
  CapturedErrors(const CapturedErrors&) = delete;
  CapturedErrors& operator=(const CapturedErrors&) = delete;

  int fd() const { return read_.get(); }
  // What was written since the last call.
  std::string Take() const;
  // Gives stderr back. Forward() writes the rest that was captured to it.
  void Restore() const;
  void Forward() const;

 private:
  util::UniqueFd read_;
  util::UniqueFd old_;
};

// The processes `vramscope attach` that this process started, by what they record.
class Attachments {
 public:
  // Starts one, or ends it. Returns what happens.
  std::string Toggle(uint32_t pid);
  // Forgets those that are over.
  void Reap();
  // Ends all of them, waits for that, and writes their messages to stderr. They end as well if this
  // process is killed.
  void EndAll(const CapturedErrors& messages);

 private:
  std::map<uint32_t, pid_t> children_;
};

}  // namespace vramscope::cli
