// SPDX-License-Identifier: Apache-2.0
#include "cli/launcher/session.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

#include "cli/launcher/live_file_writer.h"
#include "format/layout.h"
#include "trace/trace.h"
#include "util/file.h"
#include "util/json_writer.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kGrace{1000};
constexpr std::chrono::milliseconds kGraceStep{20};
constexpr std::chrono::milliseconds kStopGrace{5000};
constexpr std::chrono::milliseconds kStopStep{2};
constexpr char kSessionFile[] = "session.json";
constexpr char kLiveExtension[] = ".vrl";

util::Status CheckFolder(const fs::path& folder, const std::string& path, const char* option) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return util::Status::Error(fmt::format(
        "cannot write {}: the directory {} does not exist: create it, or choose another "
        "with {}",
        path, folder.string(), option));
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return util::Status::Error(fmt::format("cannot write {}: {}: choose another place with {}",
                                           path, util::ErrnoText(errno), option));
  }
  return {};
}

bool IsFinishedTrace(const std::string& path) {
  char magic[sizeof trace::kFinishedMagic] = {};
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  const ssize_t got = pread(fd, magic, sizeof magic, 0);
  close(fd);
  return got == sizeof magic && std::memcmp(magic, trace::kFinishedMagic, sizeof magic) == 0;
}

std::vector<fs::path> FilesOf(const std::string& live_directory, const char* extension) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(live_directory, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == extension)
      files.push_back(it->path());
  }
  return files;
}

std::vector<fs::path> LiveFiles(const std::string& live_directory) {
  return FilesOf(live_directory, kLiveExtension);
}

// Whether the process has a file of `live_directory` mapped or open.
bool HoldsFilesOf(uint32_t pid, const std::string& live_directory) {
  const std::string prefix = live_directory + "/";
  std::error_code error;
  for (fs::directory_iterator it(fmt::format("/proc/{}/fd", pid), error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    if (fs::read_symlink(it->path(), gone).string().starts_with(prefix))
      return true;
  }
  FILE* const maps = fopen(fmt::format("/proc/{}/maps", pid).c_str(), "re");
  if (maps == nullptr)
    return false;
  bool found = false;
  char* line = nullptr;
  size_t capacity = 0;
  while (!found && getline(&line, &capacity, maps) > 0) {
    found = std::strstr(line, prefix.c_str()) != nullptr;
  }
  free(line);
  fclose(maps);
  return found;
}

// A process that goes on after its recording may have parts of the file mapped for as long as it
// lives. Unlike a file cut short, one with a hole can still be written there.
void GiveSpaceBack(const fs::path& file) {
  const int fd = open(file.c_str(), O_WRONLY | O_CLOEXEC);
  struct stat info {};
  if (fd >= 0 && fstat(fd, &info) == 0)
    (void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, info.st_size);
  if (fd >= 0)
    close(fd);
}

std::string CommandOfProcess(uint32_t pid) {
  FILE* const file = fopen(fmt::format("/proc/{}/comm", pid).c_str(), "re");
  if (file == nullptr)
    return "";
  char text[64] = {};
  const size_t got = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  return std::string(text, got > 0 && text[got - 1] == '\n' ? got - 1 : got);
}

}  // namespace

std::string LiveDirectoryOf(const std::string& path) {
  return path + ".d";
}

std::string OutputOf(const std::string& live_directory) {
  if (live_directory.ends_with(".d"))
    return live_directory.substr(0, live_directory.size() - 2);
  return live_directory + ".vram";
}

bool IsLiveDirectory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) &&
         (fs::is_regular_file(fs::path(path) / kSessionFile, error) || !LiveFiles(path).empty() ||
          fs::is_empty(path, error));
}

util::Status CheckOutput(const std::string& path, const std::string& being_finished) {
  const fs::path file(path);
  VRAMSCOPE_RETURN_IF_ERROR(CheckFolder(file.parent_path(), path, "-o"));
  // It is written under a longer name first.
  if (fs::path(util::AtomicFile::TemporaryName(path)).filename().string().size() > NAME_MAX) {
    return util::Status::Error(fmt::format("cannot write {}: choose a shorter name with -o", path));
  }
  struct stat info {};
  if (stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) {
      return util::Status::Error(fmt::format("{} is a directory: name a file in it with -o", path));
    }
    if (!S_ISREG(info.st_mode)) {
      return util::Status::Error(
          fmt::format("{} is not a regular file: choose another name with -o", path));
    }
    if (info.st_size != 0 && !IsFinishedTrace(path)) {
      return util::Status::Error(fmt::format(
          "{} exists and is not a vramscope trace: remove it, or choose another name with -o",
          path));
    }
  }
  const std::string live = LiveDirectoryOf(path);
  if (live == being_finished || lstat(live.c_str(), &info) != 0)
    return {};
  if (!S_ISDIR(info.st_mode) || !IsLiveDirectory(live)) {
    return util::Status::Error(fmt::format(
        "{} exists and is not a vramscope recording: remove it, or choose another name with -o",
        live));
  }
  if (LauncherIsAlive(live)) {
    return util::Status::Error(fmt::format(
        "another `vramscope run` is recording into {}: choose another name with -o", live));
  }
  if (const std::vector<Recorder> recorders = LiveRecorders(live); !recorders.empty()) {
    return util::Status::Error(
        fmt::format("process {} ({}) is still recording into {}: choose another name with -o",
                    recorders[0].pid, recorders[0].command, live));
  }
  return {};
}

util::Status CheckReportOutput(const std::string& path, const std::string& output) {
  std::error_code error;
  const fs::path file = fs::absolute(path, error).lexically_normal();
  VRAMSCOPE_RETURN_IF_ERROR(CheckFolder(file.parent_path(), path, "--html"));
  if (fs::is_directory(file, error)) {
    return util::Status::Error(
        fmt::format("{} is a directory: name a file in it with --html", path));
  }
  if (file == output || IsFinishedTrace(file)) {
    return util::Status::Error(
        fmt::format("{} is a recording: choose another file with --html", path));
  }
  return {};
}

util::Result<std::string> CreateLiveDirectory(const std::string& path) {
  std::string live = LiveDirectoryOf(path);
  std::error_code error;
  if (fs::is_directory(live, error))
    VRAMSCOPE_RETURN_IF_ERROR(RemoveLiveDirectory(live));
  if (mkdir(live.c_str(), 0755) != 0) {
    return util::Status::Error(fmt::format("cannot create {}: {}: choose another place with -o",
                                           live, util::ErrnoText(errno)));
  }
  return live;
}

util::Status WriteSessionRecord(const std::string& live_directory, const SessionRecord& record) {
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  std::error_code error;
  std::string text;
  util::JsonWriter json(&text, 2);
  json.BeginObject();
  json.Field("version", VRAMSCOPE_VERSION);
  json.Field("name", record.name);
  if (!record.command.empty()) {
    json.Key("command");
    json.BeginArray();
    for (const std::string& word : record.command)
      json.String(word);
    json.EndArray();
  }
  json.Field("start_wall_ns", int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec);
  json.Field("working_directory", fs::current_path(error).string());
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) == 0)
    json.Field("host", host);
  if (!record.options.empty())
    json.Field("options", record.options);
  json.EndObject();
  json.Finish();
  util::Result<util::AtomicFile> file =
      util::AtomicFile::Create(live_directory + "/" + kSessionFile);
  if (!file)
    return file.status();
  VRAMSCOPE_RETURN_IF_ERROR(file->Write(text));
  return file->Commit();
}

std::vector<Recorder> LiveRecorders(const std::string& live_directory) {
  std::vector<Recorder> recorders;
  for (const fs::path& path : LiveFiles(live_directory)) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
      continue;
    format::FileHeader header{};
    const ssize_t got = pread(fd, static_cast<void*>(&header), sizeof header, 0);
    close(fd);
    if (got != static_cast<ssize_t>(sizeof header) ||
        std::memcmp(header.magic, format::kFileMagic, sizeof header.magic) != 0 ||
        header.writer != static_cast<uint16_t>(format::WriterKind::kProbe)) {
      continue;
    }
    if (HoldsFilesOf(header.pid, live_directory)) {
      recorders.push_back({.pid = header.pid, .command = CommandOfProcess(header.pid)});
    }
  }
  std::sort(recorders.begin(), recorders.end(),
            [](const Recorder& a, const Recorder& b) { return a.pid < b.pid; });
  return recorders;
}

std::vector<Recorder> RecordersThatStay(const std::string& live_directory, uint32_t stopped_pid) {
  const auto deadline = std::chrono::steady_clock::now() + kGrace;
  for (;;) {
    std::vector<Recorder> recorders = LiveRecorders(live_directory);
    std::erase_if(recorders, [&](const Recorder& r) { return r.pid == stopped_pid; });
    if (recorders.empty() || std::chrono::steady_clock::now() >= deadline)
      return recorders;
    std::this_thread::sleep_for(kGraceStep);
  }
}

bool LauncherIsAlive(const std::string& live_directory) {
  const int fd = open((live_directory + "/" + kLauncherFile).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  const bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return locked;
}

bool IsReadOnlyPlace(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  return fs::is_directory(folder, error) && access(folder.c_str(), W_OK | X_OK) != 0;
}

void StopSidecar(const std::string& live_directory) {
  if (!LauncherIsAlive(live_directory))
    return;
  const std::string stop = live_directory + "/" + kStopFile;
  const int fd = open(stop.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd >= 0)
    close(fd);
  const auto deadline = std::chrono::steady_clock::now() + kStopGrace;
  while (LauncherIsAlive(live_directory) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(kStopStep);
  unlink(stop.c_str());
}

util::Status RemoveLiveDirectory(const std::string& live_directory) {
  if (!IsLiveDirectory(live_directory)) {
    return util::Status::Error(
        fmt::format("{} is not a vramscope recording: nothing was removed", live_directory));
  }
  // The session file goes last: until then the directory is recognisably ours.
  for (const fs::path& file : LiveFiles(live_directory)) {
    GiveSpaceBack(file);
    unlink(file.c_str());
  }
  for (const fs::path& mark : FilesOf(live_directory, format::kUnrecordedExtension))
    unlink(mark.c_str());
  unlink((live_directory + "/" + kSessionFile).c_str());
  if (rmdir(live_directory.c_str()) != 0) {
    return util::Status::Error(fmt::format("cannot remove {}: {}: remove it by hand",
                                           live_directory, util::ErrnoText(errno)));
  }
  return {};
}

}  // namespace vramscope::cli
