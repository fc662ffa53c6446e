// SPDX-License-Identifier: Apache-2.0
#include "pipeline/survivors.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <set>
#include <thread>

#include "pipeline/live_directory.h"
#include "util/file.h"

namespace vramscope::cli {
namespace {

constexpr char kProbeFile[] = "libvramscope_probe.so";
constexpr std::chrono::milliseconds kGrace{1000};
constexpr std::chrono::milliseconds kGraceStep{20};
// A program that has just been started has loaded nothing yet that tells what it is.
constexpr double kYoungSeconds = 10;

double AgeSeconds(pid_t pid) {
  ProcessStat stat;
  timespec now{};
  if (!ReadProcessStat(pid, &stat) || clock_gettime(CLOCK_BOOTTIME, &now) != 0)
    return 0;
  return static_cast<double>(now.tv_sec) -
         static_cast<double>(stat.start_ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

bool Has(const std::vector<Recorder>& recorders, pid_t pid) {
  return std::any_of(recorders.begin(), recorders.end(), [pid](const Recorder& recorder) {
    return recorder.pid == static_cast<uint32_t>(pid);
  });
}

void AddWithoutEvents(const std::string& live_directory, Survivors* survivors) {
  const std::vector<std::string> sessions = SessionsOf(live_directory);
  for (const pid_t pid : util::AllProcesses()) {
    const std::optional<std::string> environment = util::ReadProc(pid, "environ");
    if (!environment || EnrolmentOf(*environment, live_directory, sessions) != Enrolment::kHere ||
        IsThisProgram(pid) || Has(survivors->recording, pid) || !IsRunning(pid)) {
      continue;
    }
    const std::optional<std::string> maps = util::ReadProc(pid, "maps");
    if (!maps || !HasProbe(*maps))
      continue;
    (MayRecord(*maps, AgeSeconds(pid)) ? survivors->may_record : survivors->idle)
        .push_back({.pid = static_cast<uint32_t>(pid), .command = util::ProcCommand(pid)});
  }
}

}  // namespace

const Recorder* Survivors::Reason() const {
  return !recording.empty() ? &recording[0] : !may_record.empty() ? &may_record[0] : nullptr;
}

Survivors FindSurvivors(const std::string& live_directory) {
  Survivors survivors{.recording = LiveRecorders(live_directory)};
  AddWithoutEvents(live_directory, &survivors);
  return survivors;
}

Survivors SurvivorsThatStay(const std::string& live_directory, const Grace& grace) {
  const auto deadline = std::chrono::steady_clock::now() + kGrace;
  for (;;) {
    Survivors survivors;
    if (grace.stopped_pid == 0) {
      survivors = FindSurvivors(live_directory);
    } else {
      survivors.recording = LiveRecorders(live_directory);
      std::erase_if(survivors.recording,
                    [&](const Recorder& r) { return r.pid == grace.stopped_pid; });
    }
    const bool waits =
        !survivors.recording.empty() || (grace.without_events && !survivors.may_record.empty());
    if (!waits || std::chrono::steady_clock::now() >= deadline)
      return survivors;
    std::this_thread::sleep_for(kGraceStep);
  }
}

bool MayRecord(std::string_view maps, double age_seconds) {
  if (age_seconds < kYoungSeconds)
    return true;
  while (!maps.empty()) {
    const std::string_view line = maps.substr(0, maps.find('\n'));
    maps.remove_prefix(std::min(line.size() + 1, maps.size()));
    // Folders are named after anything.
    const std::string_view file = line.substr(line.rfind('/') + 1);
    for (const std::string_view word :
         {"python", "cuda", "torch", "c10", "jax", "xla", "nccl", "nvidia", "cupy"}) {
      if (line.find('/') != std::string_view::npos && file.find(word) != std::string_view::npos)
        return true;
    }
  }
  return false;
}

bool HasProbe(std::string_view maps) {
  return maps.find(kProbeFile) != std::string_view::npos;
}

bool IsThisProgram(pid_t pid) {
  struct stat own {
  }, other{};
  return stat("/proc/self/exe", &own) == 0 &&
         stat(fmt::format("/proc/{}/exe", pid).c_str(), &other) == 0 &&
         own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

bool ParseProcessStat(std::string_view text, ProcessStat* stat) {
  // "PID (NAME) STATE PARENT ..." with the start time as the 22nd word, and NAME may hold anything.
  const size_t end = text.rfind(')');
  if (end == std::string_view::npos || text.size() < end + 3)
    return false;
  text.remove_prefix(end + 2);
  stat->state = text.front();
  for (int word = 3; word <= 22; ++word) {
    const size_t space = text.find(' ');
    const std::string_view value = text.substr(0, space);
    const auto read = [&](auto* number) {
      return std::from_chars(value.data(), value.data() + value.size(), *number).ec == std::errc();
    };
    if (word == 4 && !read(&stat->parent))
      return false;
    if (word == 9 && !read(&stat->flags))
      return false;
    if (word == 22)
      return read(&stat->start_ticks);
    if (space == std::string_view::npos)
      return false;
    text.remove_prefix(space + 1);
  }
  return false;
}

bool ReadProcessStat(pid_t pid, ProcessStat* stat) {
  const std::optional<std::string> text = util::ReadProc(pid, "stat");
  return text && ParseProcessStat(*text, stat);
}

bool IsRunning(pid_t pid) {
  constexpr uint64_t kExiting = 4;  // the kernel's PF_EXITING
  ProcessStat stat;
  return ReadProcessStat(pid, &stat) && stat.state != 'Z' && stat.state != 'X' &&
         (stat.flags & kExiting) == 0;
}

bool IsBelow(pid_t pid, pid_t root) {
  for (int depth = 0; depth < 64 && pid > 1; ++depth) {
    if (pid == root)
      return true;
    ProcessStat stat;
    if (!ReadProcessStat(pid, &stat))
      return false;
    pid = stat.parent;
  }
  return false;
}

std::vector<pid_t> ProcessesFrom(pid_t root) {
  std::vector<pid_t> found;
  std::vector<pid_t> waiting = {root};
  std::set<pid_t> seen;
  while (!waiting.empty()) {
    const pid_t pid = waiting.back();
    waiting.pop_back();
    if (!seen.insert(pid).second)
      continue;
    found.push_back(pid);
    for (const std::string& task : util::ListProc(pid, "task")) {
      const std::optional<std::string> text = util::ReadProc(pid, "task/" + task + "/children");
      if (!text)
        continue;
      const char* at = text->data();
      const char* const last = at + text->size();
      for (pid_t child = 0; at < last;) {
        const auto [next, failed] = std::from_chars(at, last, child);
        if (failed != std::errc())
          break;
        waiting.push_back(child);
        at = next < last ? next + 1 : next;
      }
    }
  }
  return found;
}

Enrolment EnrolmentOf(std::string_view environment,
                      std::string_view live_directory,
                      const std::vector<std::string>& sessions) {
  constexpr std::string_view kDirectory = "VRAMSCOPE_DIR=";
  constexpr std::string_view kOptions = "VRAMSCOPE_OPTIONS=";
  constexpr std::string_view kSession = "session=";
  constexpr std::string_view kPreload = "LD_PRELOAD=";
  std::string_view directory, wanted;
  bool has_probe = false;
  while (!environment.empty()) {
    const size_t end = environment.find('\0');
    const std::string_view entry = environment.substr(0, end);
    if (entry.starts_with(kDirectory))
      directory = entry.substr(kDirectory.size());
    if (const size_t at = entry.find(kSession);
        entry.starts_with(kOptions) && at != std::string_view::npos) {
      wanted = entry.substr(at + kSession.size());
      wanted = wanted.substr(0, wanted.find(','));
    }
    if (entry.starts_with(kPreload))
      has_probe = entry.find(kProbeFile) != std::string_view::npos;
    environment.remove_prefix(end == std::string_view::npos ? environment.size() : end + 1);
  }
  if (directory.empty() || !has_probe)
    return Enrolment::kNone;
  const bool is_here =
      directory == live_directory &&
      (wanted.empty() || std::find(sessions.begin(), sessions.end(), wanted) != sessions.end());
  return is_here ? Enrolment::kHere : Enrolment::kElsewhere;
}

}  // namespace vramscope::cli
