// SPDX-License-Identifier: Apache-2.0

#include "pipeline/open_recording.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "pipeline/console.h"
#include "pipeline/live_directory.h"
#include "query/core/peaks.h"
#include "resolve/resolve.h"
#include "tables/reader.h"
#include "tables/writer.h"
#include "trace/live/live_trace.h"
#include "util/file.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

// The finished form of a live directory, in memory without a name: six bytes an event.
util::Result<std::unique_ptr<tables::Recording>> ResolveInPlace(const std::string& path,
                                                                const std::string& directory,
                                                                trace::OpenOptions options) {
  util::Result<std::unique_ptr<trace::Trace>> trace =
      trace::LiveTrace::Open(path, directory, UpToNow(directory, std::move(options)));
  if (!trace)
    return trace.status();
  const int fd = memfd_create("vramscope", MFD_CLOEXEC);
  if (fd < 0) {
    return util::Status::Error(
        fmt::format("{}: not enough memory to read it: {}", path, util::ErrnoText(errno)));
  }
  Progress progress("reading " + path);
  const util::Status written =
      WriteResolved(**trace, fd, path, [&](double share) { progress.Update(share); });
  util::Result<std::unique_ptr<tables::Recording>> recording =
      written.ok() ? tables::OpenDescriptor(fd, path)
                   : util::Result<std::unique_ptr<tables::Recording>>(written);
  close(fd);
  if (recording)
    (*recording)->SetResolvedInPlace((*trace)->session().file_bytes);
  return recording;
}

// The number of pieces that the page cuts a rank's history into: with a thousand ranks more would
// not be visible.
size_t StretchesOf(size_t ranks) {
  constexpr size_t kOfAll = 120'000;
  return std::clamp<size_t>(kOfAll / std::max<size_t>(ranks, 1), 60, 600);
}

}  // namespace

util::Status WriteFinished(int fd, const std::string& path, const TablesMaker& make) {
  tables::Writer writer(fd, path);
  util::Result<tables::Tables> tables = make(writer);
  if (!tables)
    return tables.status();
  VRAMSCOPE_RETURN_IF_ERROR(writer.Finish(*tables));
  // The highest instants are a question to all the rest.
  const util::Result<std::unique_ptr<tables::Recording>> recording =
      tables::OpenDescriptor(fd, path);
  if (!recording)
    return recording.status();
  util::Result<query::Peaks> peaks = query::FindBothPeaks(**recording);
  if (!peaks)
    return peaks.status();
  tables->peaks = std::move(peaks->highest);
  query::NoteAllocatedPeaks(peaks->allocated, &*tables);
  return writer.Finish(*tables);
}

util::Status WriteResolved(trace::Trace& trace,
                           int fd,
                           const std::string& path,
                           const std::function<void(double)>& progress) {
  return WriteFinished(fd, path, [&](tables::AllocationSink& sink) {
    return resolve::Resolve(trace, sink, progress);
  });
}

util::Result<std::unique_ptr<tables::Recording>> OpenRecording(const std::string& path,
                                                               trace::OpenOptions options) {
  const std::string live = tables::LiveFormOf(path);
  if (!live.empty()) {
    auto recording = ResolveInPlace(path, live, options);
    // If another process has finished it meanwhile, the file is whole.
    const bool is_finished = !recording && tables::LiveFormOf(path) != live;
    return is_finished ? tables::Open(OutputOf(live)) : std::move(recording);
  }
  std::error_code error;
  const bool exists = fs::exists(path, error);
  if (!exists && (!error || error == std::errc::no_such_file_or_directory)) {
    constexpr std::string_view kLive = ".d";
    const std::string name = path.substr(0, path.find_last_not_of('/') + 1);
    if (name.ends_with(kLive)) {
      const std::string finished = name.substr(0, name.size() - kLive.size());
      return util::Status::Error(
          fs::exists(finished, error)
              ? fmt::format("{}: does not exist: the recording is finished: use {}", path, finished)
              : fmt::format("{}: does not exist, and neither does {}: check the name", path,
                            finished));
    }
    return util::Status::Error(
        fmt::format("{}: does not exist, and neither does {}.d: check the name", path, path));
  }
  return tables::Open(path);
}

void EndQuietly() {
  util::AtomicFile::DiscardAll();
  std::_Exit(kExitOk);
}

util::Status PrintOut(std::string_view text) {
  // The reader may close the pipe early: `export | head`. This is not an error.
  signal(SIGPIPE, SIG_IGN);
  errno = 0;
  const size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written == text.size() && std::fflush(stdout) == 0)
    return {};
  if (errno == EPIPE)
    EndQuietly();
  return util::Status::Error(
      fmt::format("cannot write to the standard output: {}", util::ErrnoText(errno)));
}

util::Status CheckNotInput(const std::string& output, const std::string& input) {
  std::error_code error;
  if (!std::filesystem::equivalent(output, input, error) || error)
    return {};
  return util::Status::Error(
      fmt::format("{} is the recording itself: choose another output file", output));
}

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
      return util::Status::Error(path + ": contains no recording (*.vram)");
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

util::Result<query::RankReport> ReadRanks(const std::vector<std::string>& files, bool histories) {
  query::RankFold fold(histories ? StretchesOf(files.size()) : 0);
  std::vector<std::string> unread;
  for (const std::string& file : files) {
    // A damaged recording gets an error of its own, and the others are reported.
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
