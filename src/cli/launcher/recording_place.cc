// SPDX-License-Identifier: Apache-2.0
#include "cli/launcher/recording_place.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <system_error>

#include "cli/commands.h"

namespace vramscope::cli {

namespace fs = std::filesystem;

util::Status RecordingPlace::Choose(const std::string& output) {
  if (output.empty())
    return {};
  std::error_code error;
  output_ = fs::absolute(output, error).lexically_normal().string();
  if (IsReadOnlyPlace(output_))
    VRAMSCOPE_RETURN_IF_ERROR(GoElsewhere());
  return CheckOutput(output_);
}

util::Status RecordingPlace::GoElsewhere() {
  std::error_code error;
  const fs::path wanted(output_);
  const fs::path temporary = fs::temp_directory_path(error);
  // In a directory of its own: names in the shared one can be guessed, and taken.
  util::Result<util::OwnedDirectory> folder =
      util::OwnedDirectory::CreateTemporary((temporary / "vramscope-").string());
  if (error || !folder) {
    return util::Status::Error(
        fmt::format("{} cannot be written: choose another place with -o", output_));
  }
  elsewhere_ = std::move(*folder);
  output_ = (fs::path(elsewhere_.path()) / wanted.filename()).string();
  const std::string place = wanted.parent_path().string();
  notes_.push_back(fmt::format("{} cannot be written: the recording is {}",
                               place.empty() ? "the working directory" : place, output_));
  return {};
}

util::Status RecordingPlace::MakeSession(const SessionRecord& session) {
  VRAMSCOPE_RETURN_IF_ERROR(CheckOutput(output_));
  util::Result<util::OwnedDirectory> live = CreateLiveDirectory(output_);
  if (!live)
    return live.status();
  live_ = std::move(*live);
  util::Status status = WriteSessionRecord(live_, session);
  if (status.ok()) {
    util::Result<std::unique_ptr<LiveFileWriter>> file =
        LiveFileWriter::Create(live_.CreateFile(kLauncherFile), session.command);
    status = file.status();
    if (status.ok())
      file_ = std::move(*file);
  }
  if (!status.ok())
    (void)RemoveLiveDirectory(live_);
  return status;
}

util::Status RecordingPlace::Open(const SessionRecord& session, pid_t pid) {
  const bool chosen = !output_.empty();
  if (!chosen) {
    std::error_code error;
    std::string name = session.name;
    std::replace(name.begin(), name.end(), '/', '_');
    output_ = (fs::current_path(error) / fmt::format("{}-{}.vram", name, pid)).string();
  }
  const util::Status status = MakeSession(session);
  // A file in the way of a chosen name is a mistake to be corrected. A full disk is not.
  if (status.ok() || (chosen && !CheckOutput(output_).ok()))
    return status;
  VRAMSCOPE_RETURN_IF_ERROR(GoElsewhere());
  return MakeSession(session);
}

void RecordingPlace::Abandon() {
  file_.reset();
  (void)RemoveLiveDirectory(live_);
}

util::Status RecordingPlace::FinishFile(int interrupted_status) {
  struct stat info {};
  if (lstat(output_.c_str(), &info) == 0) {
    return util::Status::Error(fmt::format(
        "{} appeared during the run and was left as it is: name another file with -o", output_));
  }
  try {
    return FinishRecording(live_.path(), output_, interrupted_status);
  } catch (const std::exception& failure) {
    // Memory, mostly. The program's status is the program's.
    return util::Status::Error(fmt::format("cannot write {}: {}", output_, failure.what()));
  }
}

bool RecordingPlace::Finish(const ReportOptions& report, int interrupted_status) {
  if (!live_.IsAtItsPath()) {
    Fail(fmt::format("the recording is lost: {} was removed or renamed meanwhile", live_.path()));
    return false;
  }
  if (const util::Status status = FinishFile(interrupted_status); !status.ok()) {
    Fail(status.message());
    Note(fmt::format("the recording stays in {}: `vramscope finish {}` completes it", live_.path(),
                     live_.path()));
    return false;
  }
  if (const util::Status removed = RemoveLiveDirectory(live_); !removed.ok())
    Note(removed.message());
  try {
    return PrintRecording(output_, report);
  } catch (const std::exception& failure) {
    Fail(fmt::format("cannot report {}: {}", output_, failure.what()));
    return false;
  }
}

}  // namespace vramscope::cli
