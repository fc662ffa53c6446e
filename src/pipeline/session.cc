// SPDX-License-Identifier: Apache-2.0
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
#include <optional>
#include <system_error>
#include <thread>

#include "base/clock.h"
#include "format/layout.h"
#include "pipeline/live_directory.h"
#include "pipeline/survivors.h"
#include "util/file.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kStopGrace{5000};
constexpr std::chrono::milliseconds kStopStep{2};
constexpr std::chrono::milliseconds kSettles{2};
constexpr char kLiveFileExtension[] = ".vrl";

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
  const auto file = util::OpenRegular(path, util::Links::kFollow, nullptr);
  return file && pread(file->get(), magic, sizeof magic, 0) == sizeof magic &&
         std::memcmp(magic, trace::kFinishedMagic, sizeof magic) == 0;
}

std::vector<fs::path> LiveFiles(const std::string& live_directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(live_directory, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == kLiveFileExtension)
      files.push_back(it->path());
  }
  return files;
}

// The path of a directory as /proc/PID/maps shows it: that of a container begins at its root.
std::string MappedPath(const std::string& directory) {
  if (!directory.starts_with("/proc/"))
    return directory;
  const util::UniqueFd fd(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  return util::ReadProcLink(getpid(), fmt::format("fd/{}", fd.get()));
}

// The path of a file that /proc/PID/maps shows, by way of the process's root directory.
std::string PathThroughRoot(pid_t pid, const std::string& mapped) {
  const std::string root = util::ReadProcLink(pid, "root");
  const bool is_below = root.size() > 1 && mapped.starts_with(root + "/");
  return fmt::format("/proc/{}/root{}", pid, is_below ? mapped.substr(root.size()) : mapped);
}

// Whether the process has a file of `live_directory` mapped or open.
bool HoldsFilesOf(pid_t pid, const std::string& live_directory) {
  const std::string prefix = MappedPath(live_directory) + "/";
  for (const std::string& number : util::ListProc(pid, "fd")) {
    if (util::ReadProcLink(pid, "fd/" + number).starts_with(prefix))
      return true;
  }
  const std::optional<std::string> maps = util::ReadProc(pid, "maps");
  return maps && maps->find(prefix) != std::string::npos;
}

// Whether the process that wrote `pid` into a live file of the directory still uses it. A container
// numbers its processes from 1: a reader may have the number of a process that died, and a child
// process in a container has another number here.
bool StillHolds(pid_t pid, const std::string& live_directory) {
  if (!IsThisProgram(pid) && HoldsFilesOf(pid, live_directory))
    return true;
  if (!live_directory.starts_with("/proc/"))
    return false;
  const std::string ending = fmt::format("\t{}", pid);
  for (const pid_t each : util::AllProcesses()) {
    const std::string status = util::ReadProc(each, "status").value_or("");
    const size_t line = status.find("\nNSpid:");
    const size_t end = line == std::string::npos ? line : status.find('\n', line + 1);
    if (end != std::string::npos && status.substr(line, end - line).ends_with(ending) &&
        !IsThisProgram(each) && HoldsFilesOf(each, live_directory))
      return true;
  }
  return false;
}

bool IsPid(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char digit) { return digit >= '0' && digit <= '9'; });
}

}  // namespace

util::Result<std::string> FindLiveDirectory(const std::string& what) {
  if (IsPid(what)) {
    const pid_t pid = util::WholeNumber<pid_t>(what).value_or(0);
    if (pid == 0)
      return util::Status::Error(fmt::format("process {} does not exist", what));
    return LiveDirectoryOfProcess(pid);
  }
  std::error_code error;
  std::string path = fs::absolute(what, error).lexically_normal().string();
  if (path.ends_with("/"))
    path.pop_back();
  for (const std::string& directory : {path, LiveDirectoryOf(path), path + ".vram.d"}) {
    if (fs::is_directory(directory, error) && IsLiveDirectory(directory))
      return directory;
  }
  if (fs::is_directory(path, error)) {
    return util::Status::Error(
        fmt::format("{} is not a live recording: use NAME.vram.d or a process ID", what));
  }
  if (fs::exists(path, error) || fs::exists(path + ".vram", error)) {
    return util::Status::Error(
        fmt::format("{} is finished: use the recording of a running program", what));
  }
  return util::Status::Error(
      fmt::format("no live recording is named {}: use NAME.vram.d or a process ID", what));
}

util::Result<std::string> LiveDirectoryOfProcess(pid_t pid) {
  int error = 0;
  const std::optional<std::string> maps = util::ReadProc(pid, "maps", &error);
  const std::string name = fmt::format("process {} ({})", pid, util::ProcCommand(pid));
  if (!maps && (error == EACCES || error == EPERM))
    return util::Status::Error(name + " belongs to another user: run the command as that user");
  if (!maps)
    return util::Status::Error(fmt::format("process {} does not exist", pid));
  // Mapped by a program, open in the launcher; in the environment of one that has done nothing yet.
  std::vector<std::string> paths;
  for (size_t begin = 0; begin < maps->size();) {
    const size_t end = std::min(maps->find('\n', begin), maps->size());
    const size_t path = maps->find('/', begin);
    if (path < end)
      paths.push_back(maps->substr(path, end - path));
    begin = end + 1;
  }
  for (const std::string& number : util::ListProc(pid, "fd"))
    paths.push_back(util::ReadProcLink(pid, "fd/" + number));
  for (const std::string& path : paths) {
    const size_t slash = path.rfind('/');
    if (!path.ends_with(kLiveFileExtension) || slash == 0)
      continue;
    const std::string directory = path.substr(0, slash);
    // The second is for a process in a container.
    for (const std::string& each : {directory, PathThroughRoot(pid, directory)}) {
      if (IsLiveDirectory(each))
        return each;
    }
  }
  const std::string variables = '\0' + util::ReadProc(pid, "environ").value_or("");
  const std::string wanted = std::string(1, '\0') + "VRAMSCOPE_DIR=";
  if (const size_t at = variables.find(wanted); at != std::string::npos) {
    const std::string directory = variables.c_str() + at + wanted.size();
    if (IsLiveDirectory(directory))
      return directory;
  }
  return util::Status::Error(name + " is not recorded: start it with `vramscope run`");
}

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
  if (util::OwnedDirectory::IsAsideName(fs::path(path).filename().string()))
    return false;
  return fs::is_directory(path, error) &&
         (fs::is_regular_file(fs::path(path) / format::kSessionFile, error) ||
          !LiveFiles(path).empty() || fs::is_empty(path, error));
}

util::Status CheckOutput(const std::string& path, const std::string& being_finished) {
  const fs::path file(path);
  VRAMSCOPE_RETURN_IF_ERROR(CheckFolder(file.parent_path(), path, "-o"));
  if (fs::path(LiveDirectoryOf(path)).filename().string().size() > NAME_MAX) {
    return util::Status::Error(fmt::format("cannot write {}: choose a shorter name with -o", path));
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
    return util::Status::Error(fmt::format("{} is a directory: name a file in it with -o", path));
  if (const std::string why = util::WhyNotReplaceable(path, &cli::kFinishedContent); !why.empty()) {
    return util::Status::Error(
        fmt::format("{} exists and {}: remove it, or choose another name with -o", path, why));
  }
  const std::string live = LiveDirectoryOf(path);
  return live == being_finished ? util::Status() : CheckLiveDirectory(live);
}

util::Status CheckLiveDirectory(const std::string& live) {
  struct stat info {};
  if (lstat(live.c_str(), &info) != 0)
    return {};
  const auto foreign = [&live](const std::string& why) {
    return util::Status::Error(
        fmt::format("{} exists and is not a vramscope recording ({}): remove it, or choose another "
                    "name with -o",
                    live, why));
  };
  if (LauncherIsAlive(live)) {
    return util::Status::Error(fmt::format(
        "another `vramscope run` is recording into {}: choose another name with -o", live));
  }
  // The process that finishes it may remove it meanwhile.
  const util::Result<util::OwnedDirectory> directory = util::OwnedDirectory::Open(live);
  if (!directory)
    return lstat(live.c_str(), &info) == 0 ? foreign(directory.status().message()) : util::Status();
  if (const std::string why = ForeignEntry(*directory); !why.empty())
    return directory->IsAtItsPath() ? foreign(why) : util::Status();
  const Survivors survivors = FindSurvivors(live);
  if (const Recorder* const process = survivors.Reason()) {
    return util::Status::Error(fmt::format(
        "process {} ({}) {} into {}: choose another name with -o", process->pid, process->command,
        survivors.recording.empty() ? "may still record" : "is still recording", live));
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
  if (const std::string why = util::WhyNotReplaceable(file, nullptr); !why.empty()) {
    return util::Status::Error(
        fmt::format("{} exists and {}: choose another file with --html", path, why));
  }
  if (file == output || IsFinishedTrace(file)) {
    return util::Status::Error(
        fmt::format("{} is a recording: choose another file with --html", path));
  }
  return {};
}

std::optional<util::FileIdentity> FindOldRecording(const std::string& path) {
  return util::FindFile(path, cli::kFinishedContent);
}

std::vector<Recorder> LiveRecorders(const std::string& live_directory) {
  std::vector<Recorder> recorders;
  for (const fs::path& path : LiveFiles(live_directory)) {
    const auto file = util::OpenRegular(path, util::Links::kRefuse, nullptr);
    if (!file)
      continue;
    format::FileHeader header{};
    const ssize_t got = pread(file->get(), static_cast<void*>(&header), sizeof header, 0);
    if (got != static_cast<ssize_t>(sizeof header) ||
        std::memcmp(header.magic, format::kFileMagic, sizeof header.magic) != 0 ||
        header.writer != static_cast<uint16_t>(format::WriterKind::kProbe)) {
      continue;
    }
    const auto pid = static_cast<pid_t>(header.pid);
    if (StillHolds(pid, live_directory))
      recorders.push_back({.pid = header.pid, .command = util::ProcCommand(pid)});
  }
  std::sort(recorders.begin(), recorders.end(),
            [](const Recorder& a, const Recorder& b) { return a.pid < b.pid; });
  return recorders;
}

trace::OpenOptions UpToNow(const std::string& live_directory, trace::OpenOptions options) {
  for (const Recorder& recorder : LiveRecorders(live_directory))
    options.running.push_back(recorder.pid);
  if (options.running.empty() && !LauncherIsAlive(live_directory))
    return options;
  const base::ClockPair now = base::ReadClocks(base::HasInvariantTsc());
  options.until_ns = now.ns;
  options.until_ticks = now.ticks;
  // After this pause all calls in progress have been written. It also makes sure that an instant of
  // one clock comes before an instant of the other.
  std::this_thread::sleep_for(kSettles);
  return options;
}

bool LauncherIsAlive(const std::string& live_directory) {
  const auto file =
      util::OpenRegular(live_directory + "/" + kLauncherFile, util::Links::kRefuse, nullptr);
  return file && flock(file->get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

pid_t LauncherOf(const std::string& live_directory) {
  const auto file =
      util::OpenRegular(live_directory + "/" + kLauncherFile, util::Links::kRefuse, nullptr);
  format::FileHeader header{};
  const bool is_read = file && pread(file->get(), static_cast<void*>(&header), sizeof header, 0) ==
                                   static_cast<ssize_t>(sizeof header);
  return is_read && LauncherIsAlive(live_directory) ? static_cast<pid_t>(header.pid) : 0;
}

bool IsReadOnlyPlace(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  return fs::is_directory(folder, error) && access(folder.c_str(), W_OK | X_OK) != 0;
}

void StopSidecar(const util::OwnedDirectory& directory) {
  if (!LauncherIsAlive(directory.path()))
    return;
  const auto stop = directory.CreateFile(kStopFile);
  const auto deadline = std::chrono::steady_clock::now() + kStopGrace;
  while (LauncherIsAlive(directory.path()) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(kStopStep);
  if (stop)
    (void)directory.Remove(kStopFile, *stop);
}

}  // namespace vramscope::cli
