// SPDX-License-Identifier: Apache-2.0
#include "record/recording_place.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "format/layout.h"
#include "pipeline/console.h"

namespace vramscope::cli {

namespace fs = std::filesystem;

std::string RankOfEnvironment() {
  for (const char* const name : format::kRankVariables) {
    const char* const value = getenv(name);
    if (value == nullptr || *value == '\0')
      continue;
    const std::string_view text = value;
    constexpr size_t kMostDigits = 9;
    const bool is_number = !text.empty() && text.size() <= kMostDigits &&
                           text.find_first_not_of("0123456789") == std::string_view::npos;
    return is_number ? std::string(text) : "";
  }
  return "";
}

util::Status RecordingPlace::Choose(const std::string& output) {
  if (output.empty())
    return {};
  std::error_code error;
  output_ = fs::absolute(output, error).lexically_normal().string();
  if (IsReadOnlyPlace(output_))
    VRAMSCOPE_RETURN_IF_ERROR(GoElsewhere());
  return CheckOrTakeRank();
}

void RecordingPlace::RecordIn(std::string folder, std::string shown) {
  folder_ = std::move(folder);
  shown_folder_ = std::move(shown);
}

std::string RecordingPlace::LivePath() const {
  const std::string beside = LiveDirectoryOf(output_);
  return folder_.empty() ? beside : folder_ + beside.substr(beside.rfind('/'));
}

std::string RecordingPlace::shown_directory() const {
  return shown_folder_.empty() ? live_.path() : shown_folder_ + live_.path().substr(folder_.size());
}

util::Status RecordingPlace::CheckOrTakeRank() {
  const util::Status status = CheckOutput(output_);
  const std::string rank = RankOfEnvironment();
  if (status.ok() || has_rank_ || rank.empty() || !LauncherIsAlive(LiveDirectoryOf(output_)))
    return status;
  fs::path ranked(output_);
  const std::string extension = ranked.extension().string();
  ranked.replace_extension();
  ranked += ".rank" + rank + extension;
  VRAMSCOPE_RETURN_IF_ERROR(CheckOutput(ranked.string()));
  notes_.push_back(fmt::format("another process records into {}: rank {} is {}", output_, rank,
                               ranked.filename().string()));
  output_ = ranked.string();
  has_rank_ = true;
  return {};
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

// It is completed under a name that processes do not look at. The existing directory stays
// untouched until then.
util::Status RecordingPlace::MakeSession(const SessionRecord& session) {
  const std::string live = LivePath();
  util::Result<util::OwnedDirectory> made = util::OwnedDirectory::CreateBeside(live);
  if (!made) {
    return util::Status::Error(
        fmt::format("{}: choose another place with -o", made.status().message()));
  }
  live_ = std::move(*made);
  util::Status status = WriteSessionRecord(live_, session);
  if (status.ok() && session.xla_dumps == trace::kXlaDumpFolder)
    status = live_.CreateBelow(trace::kXlaDumpFolder).status();
  if (status.ok()) {
    util::Result<std::unique_ptr<LiveFileWriter>> file =
        LiveFileWriter::Create(live_.CreateFile(kLauncherFile), session.command);
    status = file.status();
    if (status.ok()) {
      file_ = std::move(*file);
      // Without space for it, missing files are not noticed.
      (void)WriteManifest(live_);
    }
  }
  if (status.ok())
    return status;
  std::string why = status.message();
  if (why.starts_with(live_.path()))
    why.replace(0, live_.path().size(), live);
  Abandon();
  return util::Status::Error(why);
}

util::Status RecordingPlace::PlaceSession() {
  util::Status status = PlaceLiveDirectory(&live_, LivePath(), &older_);
  // The first of a program's ranks gets the name.
  if (!status.ok() && !has_rank_ && CheckOrTakeRank().ok() && has_rank_)
    status = PlaceLiveDirectory(&live_, LivePath(), &older_);
  if (!status.ok())
    Abandon();
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
  util::Status status = CheckOrTakeRank();
  // A file in the way of a chosen name is a mistake to be corrected. A full disk is not.
  if (chosen && !status.ok())
    return status;
  const bool is_made = status.ok() && (status = MakeSession(session)).ok();
  if (is_made)
    status = PlaceSession();
  if (!status.ok() && (!chosen || !is_made)) {
    VRAMSCOPE_RETURN_IF_ERROR(GoElsewhere());
    VRAMSCOPE_RETURN_IF_ERROR(MakeSession(session));
    status = PlaceSession();
  }
  replaced_ = FindOldRecording(output_);
  return status;
}

void RecordingPlace::CloseFile() {
  finish_ = TryFinishLock(live_.path());
  file_.reset();
}

void RecordingPlace::Abandon() {
  file_.reset();
  (void)RemoveLiveDirectory(live_);
  if (older_)
    (void)older_->MoveTo(LivePath());
  older_.reset();
}

util::Status RecordingPlace::FinishFile(int interrupted_status) {
  struct stat info {};
  const bool exists = lstat(output_.c_str(), &info) == 0;
  if (exists && (!replaced_ || FindOldRecording(output_) != replaced_)) {
    return util::Status::Error(fmt::format(
        "another program created {} during the run, and it is unchanged: use another file with -o",
        output_));
  }
  try {
    return FinishRecording(live_.path(), output_, interrupted_status);
  } catch (const std::exception& failure) {
    // Memory, mostly. The program's status is the program's.
    return util::Status::Error(fmt::format("cannot write {}: {}", output_, failure.what()));
  }
}

bool RecordingPlace::Finish(const ReportOptions& report, int interrupted_status) {
  const std::string live = live_.path();
  if (!live_.IsAtItsPath()) {
    Fail(fmt::format("the recording is lost: {} was removed or renamed during the run",
                     shown_directory()));
    return false;
  }
  if (const util::Status status = FinishFile(interrupted_status); !status.ok()) {
    Fail(status.message());
    Note(fmt::format("the recording stays in {0}: `vramscope finish {0}` completes it",
                     shown_directory()));
    return false;
  }
  if (replaced_)
    Note(fmt::format("an older recording {} was replaced", output_));
  for (const util::Status& removed : {RemoveLiveDirectory(live_), RemoveOlder(live)}) {
    if (!removed.ok())
      Note(removed.message());
  }
  try {
    return PrintRecording(output_, report);
  } catch (const std::exception& failure) {
    Fail(fmt::format("cannot report {}: {}", output_, failure.what()));
    return false;
  }
}

}  // namespace vramscope::cli
