// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "metrics/exposition.h"
#include "pipeline/live_recordings.h"
#include "record/sample/nvml.h"
#include "util/status.h"

namespace vramscope::cli {

// Reads the live recordings and NVML, and makes one exposition of them. What cannot be read is left
// out, with one note on stderr for each reason.
class Collector {
 public:
  // `what`: names of recordings, folders and process ids. Empty: every recording of a process that
  // this user may see. An error if one of them does not exist.
  static util::Result<Collector> Make(const std::vector<std::string>& what);

  std::string Collect();

 private:
  explicit Collector(LiveRecordings recordings) : recordings_(std::move(recordings)) {}

  void AddRecordings(Exposition* out);
  util::Status AddRecording(const std::string& live_directory, Exposition* out) const;
  // An exception is an error, too.
  util::Status AddRecordingSafely(const std::string& live_directory, Exposition* out) const;
  void AddGpus(Exposition* out);
  void NoteOnce(const std::string& message);

  LiveRecordings recordings_;
  std::unique_ptr<Nvml> nvml_;  // null without a driver
  std::set<std::string> noted_;
};

}  // namespace vramscope::cli
