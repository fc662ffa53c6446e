// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "record/live_file_writer.h"
#include "util/owned_file.h"
#include "util/status.h"

namespace vramscope::cli {

// This process's rank if MPI, Slurm or torchrun started it; otherwise "".
std::string RankOfEnvironment();

// The target of a recording: its name, the live directory beside it, and the launcher's own live
// file in that directory.
//
//   Choose()   checks that NAME.vram can be written
//   Open()     makes NAME.vram.d with session.json, manifest and launcher.vrl; the program starts
//   Finish()   turns NAME.vram.d into NAME.vram, removes it, and reports
class RecordingPlace {
 public:
  RecordingPlace() = default;
  // Removes a directory that it made and that stayed empty.
  ~RecordingPlace() { (void)elsewhere_.RemoveSelf(); }
  RecordingPlace(const RecordingPlace&) = delete;
  RecordingPlace& operator=(const RecordingPlace&) = delete;

  // `output` is the value of -o, or "". An error if it can be no recording.
  util::Status Choose(const std::string& output);
  // The live directory is made in `folder` and not beside the output. Messages call it `shown`.
  void RecordIn(std::string folder, std::string shown);
  // Makes directory and files. Without a chosen name it is that of the session and of `pid`. From
  // here on the program may create files at the output.
  util::Status Open(const SessionRecord& session, pid_t pid);
  // There will be no recording.
  void Abandon();

  const std::string& output() const { return output_; }  // absolute; "" if none is chosen yet
  const std::string& live_directory() const { return live_.path(); }
  // The same for messages.
  std::string shown_directory() const;
  LiveFileWriter& file() { return *file_; }
  // Nothing comes any more. No other process finishes or replaces the recording from here on.
  void CloseFile();
  // Lines for the user about the target.
  const std::vector<std::string>& notes() const { return notes_; }

  // Makes the finished recording, removes the live directory and reports. Prints errors to stderr
  // with what to do, and then returns false. `interrupted_status`: see FinishRecording().
  bool Finish(const ReportOptions& report, int interrupted_status);

 private:
  // Where the live directory is to be.
  std::string LivePath() const;
  // Takes a name below the temporary directory in place of output_.
  util::Status GoElsewhere();
  // Takes a name of this rank's where another process records into output_'s directory.
  util::Status CheckOrTakeRank();
  util::Status MakeSession(const SessionRecord& session);
  util::Status PlaceSession();
  util::Status FinishFile(int interrupted_status);

  std::string output_;
  std::string folder_;  // of the live directory; "": the output's
  std::string shown_folder_;
  bool has_rank_ = false;                       // output_ has this rank's number
  std::optional<util::FileIdentity> replaced_;  // the recording at output_ when this one began
  util::OwnedDirectory live_;
  std::optional<util::OwnedDirectory> older_;  // what was at live_'s path before
  FinishLock finish_;
  util::OwnedDirectory elsewhere_;  // made where the output's own directory cannot be written
  std::unique_ptr<LiveFileWriter> file_;
  std::vector<std::string> notes_;
};

}  // namespace vramscope::cli
