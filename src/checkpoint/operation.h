// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/driver.h"
#include "checkpoint/preflight.h"
#include "checkpoint/state_file.h"
#include "format/enums.h"
#include "record/sample/nvml.h"
#include "util/status.h"

// NVML's figures of a process, on each GPU.
namespace vramscope::cli {

struct GpuFigure {
  int32_t index = 0;
  std::string uuid;
  std::string name;
  std::optional<uint64_t> process_bytes;  // empty: NVML does not list the process there
  uint64_t used_bytes = 0;                // of the whole device
  uint64_t free_bytes = 0;
};

// One entry a GPU, in NVML's order. Empty without NVML.
std::vector<GpuFigure> ReadFigures(GpuMonitor* monitor, pid_t pid);

// Whether NVML lists the process on any GPU.
bool IsListed(const std::vector<GpuFigure>& figures);
// All GPUs together; 0 if the process is not listed.
uint64_t ProcessBytes(const std::vector<GpuFigure>& figures);

struct FreedOnGpu {
  int32_t index = 0;
  std::string uuid;
  std::string name;
  uint64_t bytes = 0;
};
// The bytes that the process freed between the two, on GPUs where it freed any. By its own figures
// if NVML has them, otherwise by the devices'.
std::vector<FreedOnGpu> FreedBetween(const std::vector<GpuFigure>& before,
                                     const std::vector<GpuFigure>& after);

// Shared by `yield` and `resume`: their start, long calls with a progress line, and their notes in
// the recording.

// The tools that `yield` and `resume` use to inspect a process and move its memory.
struct Access {
  std::unique_ptr<Nvml> nvml;  // null if there is none
  std::unique_ptr<CheckpointDriver> driver;
  std::unique_ptr<StateFile> file;
  CheckpointState state{};  // of the process, when this was opened
};
// Nothing is changed.
util::Result<Access> OpenAccess(const Target& target);

// While it lives, SIGINT and similar signals end nothing: they are remembered.
class HeldInterrupts {
 public:
  HeldInterrupts();
  ~HeldInterrupts();
  HeldInterrupts(const HeldInterrupts&) = delete;
  HeldInterrupts& operator=(const HeldInterrupts&) = delete;
  static bool Came();
};

// Runs `call` in a thread of its own. `share` says how far it is, 0 to 1; `on_interrupt` is called
// once where the user wants it to end, which it does not do before its time.
DriverAnswer RunShown(const std::string& what,
                      const std::function<DriverAnswer()>& call,
                      const std::function<double()>& share,
                      const std::function<void()>& on_interrupt = {});

struct TimedStep {
  format::CheckpointKind kind = format::CheckpointKind::kLock;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};
struct Outcome {
  const char* verb = "";  // "gave back", "has back"
  uint64_t bytes = 0;
  int64_t duration_ns = 0;
  std::vector<FreedOnGpu> gpus;
};
// Says in the process's recording what was done to it, as events and as a line of `info`. A
// recording that is not there any more, or cannot be written, is left alone.
void NoteInRecording(const std::string& live_directory,
                     const Target& target,
                     const std::vector<TimedStep>& steps,
                     const Outcome& outcome);

// "process 123 (python3)"
std::string NameOf(const Target& target);
// For a process that the driver has given up; what a person can do.
std::string FailedText(const Target& target);

// For Ctrl-C while the driver moves memory.
void NoteUnstoppable(const Target& target);

// Checks a process id that a person typed; "" if it is one. For CLI11.
std::string CheckPid(const std::string& text);

// For people, or as JSON for the Python package. False if it cannot be written.
bool PrintOutcome(const Target& target, const Outcome& outcome, bool json);

}  // namespace vramscope::cli
