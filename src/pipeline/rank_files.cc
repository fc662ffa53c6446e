// SPDX-License-Identifier: Apache-2.0
#include "pipeline/rank_files.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "pipeline/open_recording.h"
#include "pipeline/session.h"

namespace vramscope::cli {
namespace {

// Into how many a rank's history is cut on the page: of a thousand ranks nobody sees more.
size_t StretchesOf(size_t ranks) {
  constexpr size_t kOfAll = 120'000;
  return std::clamp<size_t>(kOfAll / std::max<size_t>(ranks, 1), 60, 600);
}

}  // namespace

bool IsFolder(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error))
    return false;
  // A recording whose program has not begun has an empty directory too, with a name of its own.
  return std::filesystem::is_empty(path, error) ? !path.ends_with(".vram.d")
                                                : !IsLiveDirectory(path);
}

std::vector<std::string> RecordingsIn(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string path = it->path().string();
    if (path.ends_with(".vram"))
      files.push_back(path);
    else if (path.ends_with(".vram.d") && !std::filesystem::exists(OutputOf(path)))
      files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

util::Result<std::vector<std::string>> RankFiles(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    const std::vector<std::string> inside =
        IsFolder(path) ? RecordingsIn(path) : std::vector<std::string>{path};
    if (inside.empty())
      return util::Status::Error(path + ": there is no recording (*.vram) in this directory");
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

util::Result<query::RankReport> ReadRanks(const std::vector<std::string>& files, bool histories) {
  query::RankFold fold(histories ? StretchesOf(files.size()) : 0);
  std::vector<std::string> unread;
  for (const std::string& file : files) {
    // One that is damaged says so, and the others are reported.
    util::Result<std::unique_ptr<tables::Recording>> recording = OpenRecording(file);
    const util::Status added = recording.ok() ? fold.Add(file, **recording) : recording.status();
    if (!added.ok())
      unread.push_back(added.message());
  }
  if (!files.empty() && unread.size() == files.size())
    return util::Status::Error(unread.front());
  query::RankReport report = std::move(fold).Finish();
  report.unread = std::move(unread);
  return report;
}

}  // namespace vramscope::cli
