// SPDX-License-Identifier: Apache-2.0
#include "cli/launcher/survivors.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "cli/launcher/live_directory.h"
#include "cli/launcher/process_watch.h"
#include "util/proc.h"

namespace vramscope::cli {
namespace {

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

}  // namespace vramscope::cli
