// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "cli/launcher/session.h"

// Processes that outlive the program of a recording.
namespace vramscope::cli {

struct Survivors {
  std::vector<Recorder> recording;  // have a live file
  // Have the recording's variables and the probe, and no event yet.
  std::vector<Recorder> may_record;
  std::vector<Recorder> idle;  // as may_record, but nothing suggests that they use a GPU

  // Why the directory has to stay: the first process of `recording`, else of `may_record`, or null.
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

}  // namespace vramscope::cli
