// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/live_directory.h"

// Processes that outlive the program of a recording.
namespace vramscope::cli {

struct Survivors {
  std::vector<Recorder> recording;  // have a live file
  // Have the recording's variables and the probe, and no event yet.
  std::vector<Recorder> may_record;
  std::vector<Recorder> idle;  // as may_record, but nothing suggests that they use a GPU

  // Why the directory has to stay: the first process of `recording`, then of `may_record`, or null.
  const Recorder* Reason() const;
};

// Who records, or may record, into the directory now.
Survivors FindSurvivors(const std::string& live_directory);

struct Grace {
  // Has a file open but records no more: it asks for the block that it recorded, so processes
  // without an event are not looked for. 0: no such.
  uint32_t stopped_pid = 0;
  bool without_events = true;  // wait for processes without an event, too
};
// The same after a moment's grace: children that notice the end of the program end too, and so does
// a process that was killed just now.
Survivors SurvivorsThatStay(const std::string& live_directory, const Grace& grace);

// Whether a process without an event is to be waited for: it is young, or has Python, PyTorch or a
// CUDA library mapped. A seam for tests.
bool MayRecord(std::string_view maps, double age_seconds);

// How a process's environment relates to its recording. Seams for tests. `sessions` is SessionsOf()
// the directory.
enum class Enrolment {
  kHere,       // the probe's environment, with this directory
  kElsewhere,  // that of another recording, which may have had this directory's name
  kNone,
};
Enrolment EnrolmentOf(std::string_view environment,
                      std::string_view live_directory,
                      const std::vector<std::string>& sessions);

// Whether the probe is among the files of /proc/PID/maps.
bool HasProbe(std::string_view maps);

// Whether the process runs our own program: it reads the recording for the program, or samples, or
// records something else, so no memory of the program's is in it.
bool IsThisProgram(pid_t pid);

// State, flags and start time of `/proc/PID/stat`'s text; the parent's number. False for anything
// else.
struct ProcessStat {
  char state = 0;
  pid_t parent = 0;
  uint64_t flags = 0;  // the kernel's
  uint64_t start_ticks = 0;
};
bool ParseProcessStat(std::string_view text, ProcessStat* stat);

// It is there, and not on its way out.
bool IsRunning(pid_t pid);

// Whether `root` is the process, or its parent, or that one's. False in another process namespace,
// where its number is not ours.
bool IsBelow(pid_t pid, pid_t root);

// `root` and all processes that IsBelow() finds below it.
std::vector<pid_t> ProcessesFrom(pid_t root);

// The kernel's figures of a process; false if it has ended.
bool ReadProcessStat(pid_t pid, ProcessStat* stat);

}  // namespace vramscope::cli
