// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "checkpoint/driver.h"
#include "checkpoint/operation.h"
#include "checkpoint/preflight.h"
#include "checkpoint/state_file.h"
#include "cli/commands.h"
#include "util/size_text.h"

// Everything that can be known is asked before the driver touches the process: what it cannot move
// it notices in the middle, and the process is lost then.
namespace vramscope::cli {
namespace {

using format::CheckpointKind;

struct YieldOptions {
  int pid = 0;
  double timeout_s = 30;
  bool unverified = false;
  bool of_parent = false;  // the process asks for itself, and knows that its CUDA calls block
  bool json = false;
};

class Yield {
 public:
  Yield(const YieldOptions& options, Target target)
      : options_(options), target_(std::move(target)) {}

  int Run() {
    util::Result<Access> access = OpenAccess(target_);
    if (!access)
      return Refuse(access.status().message());
    access_ = std::move(*access);
    if (const int code = CheckState(); code != kExitOk)
      return code;
    if (const int code = CheckMemory(); code != kExitOk)
      return code;
    before_ = ReadFigures(access_.nvml.get(), target_.pid);
    if (const util::Status status = CheckHostMemory(target_, ProcessBytes(before_)); !status.ok())
      return Refuse(status.message());
    return Move();
  }

 private:
  // Nothing was changed.
  static int Refuse(const std::string& why) { return Fail(why + ": nothing was changed"); }

  int CheckState() const {
    switch (access_.state) {
      case CheckpointState::kRunning:
        return kExitOk;
      case CheckpointState::kCheckpointed:
        return Fail(fmt::format("{} has already yielded: `vramscope resume {}` continues it",
                                NameOf(target_), target_.pid));
      case CheckpointState::kLocked:
        return Fail(fmt::format(
            "{} is locked by an unfinished checkpoint: if vramscope began it, `vramscope "
            "resume {}` unlocks it",
            NameOf(target_), target_.pid));
      case CheckpointState::kFailed:
        break;
    }
    return Fail(FailedText(target_));
  }

  int CheckMemory() {
    std::string unchecked;
    if (const util::Status status = CheckRecording(target_, &unchecked); !status.ok())
      return Refuse(status.message());
    if (unchecked.empty())
      return kExitOk;
    if (!options_.unverified) {
      return Refuse(fmt::format(
          "{} cannot be checked for memory that the driver cannot move, which would end it ({}); "
          "--unverified yields it anyway",
          NameOf(target_), unchecked));
    }
    Note(
        fmt::format("not checked: managed memory, memory shared with other processes, multicast "
                    "objects and external memory of {} ({})",
                    NameOf(target_), unchecked));
    return kExitOk;
  }

  int Move() {
    const HeldInterrupts interrupts;
    YieldState state{.start_ticks = target_.start_ticks,
                     .yielded = false,
                     .wall_seconds = time(nullptr),
                     .bytes = ProcessBytes(before_),
                     .live_directory = target_.live_directory,
                     .devices = {}};
    for (const GpuFigure& gpu : before_) {
      if (gpu.process_bytes)
        state.devices.push_back({.uuid = gpu.uuid, .bytes = *gpu.process_bytes});
    }
    // For a `resume`, should this end here.
    if (const util::Status status = access_.file->Save(state); !status.ok())
      return Refuse(status.message());
    const int64_t begin_ns = base::MonotonicNs();
    if (!Lock())
      return kExitError;
    const int64_t locked_ns = base::MonotonicNs();
    // What it allocated since the first look; now it allocates no more.
    std::string unchecked;
    if (const util::Status status = CheckRecording(target_, &unchecked); !status.ok())
      return Unlock(status.message());
    if (HeldInterrupts::Came())
      return Unlock("interrupted");
    if (!Checkpoint())
      return kExitError;
    const int64_t end_ns = base::MonotonicNs();
    const std::vector<GpuFigure> after = ReadFigures(access_.nvml.get(), target_.pid);
    Outcome outcome{.verb = "gave back",
                    .bytes = 0,
                    .duration_ns = end_ns - begin_ns,
                    .gpus = FreedBetween(before_, after)};
    state.devices.clear();
    for (const FreedOnGpu& gpu : outcome.gpus) {
      outcome.bytes += gpu.bytes;
      state.devices.push_back({.uuid = gpu.uuid, .bytes = gpu.bytes});
    }
    state.yielded = true;
    state.bytes = outcome.bytes;
    if (const util::Status status = access_.file->Save(state); !status.ok())
      Note(status.message());
    NoteInRecording(target_.live_directory, target_,
                    {{CheckpointKind::kLock, begin_ns, locked_ns},
                     {CheckpointKind::kCheckpoint, locked_ns, end_ns}},
                    outcome);
    if (!PrintOutcome(target_, outcome, options_.json))
      return kExitError;
    if (!options_.json)
      Note(fmt::format("`vramscope resume {}` continues it", target_.pid));
    return kExitOk;
  }

  bool Lock() {
    const auto limit = std::chrono::milliseconds(static_cast<int64_t>(options_.timeout_s * 1000));
    const int64_t begin_ns = base::MonotonicNs();
    const DriverAnswer answer = RunShown(
        "waiting for the work of " + NameOf(target_),
        [&] { return access_.driver->Lock(target_.pid, limit); },
        [&] {
          return static_cast<double>(base::MonotonicNs() - begin_ns) / 1e6 /
                 static_cast<double>(limit.count());
        },
        [&] {
          Note(fmt::format("interrupted: {} continues when the driver answers, within {:g} s",
                           NameOf(target_), options_.timeout_s));
        });
    if (answer.ok())
      return true;
    access_.file->Remove();
    if (!IsAlive(target_)) {
      Fail(NameOf(target_) + " ended meanwhile");
    } else if (answer.timed_out()) {
      Fail(
          fmt::format("{} did not finish its work within {:g} s: it continues unchanged; --timeout "
                      "allows more time",
                      NameOf(target_), options_.timeout_s));
    } else if (access_.driver->HasFailed(target_.pid)) {
      Fail(fmt::format("locking failed with {}, and {}", answer.Text(), FailedText(target_)));
    } else {
      Refuse(fmt::format("the driver does not lock {}: {}", NameOf(target_), answer.Text()));
    }
    return false;
  }

  bool Checkpoint() {
    const double bytes = static_cast<double>(ProcessBytes(before_));
    const DriverAnswer answer = RunShown(
        "moving the device memory of " + NameOf(target_),
        [&] { return access_.driver->Checkpoint(target_.pid); },
        [&] {
          const auto now =
              static_cast<double>(ProcessBytes(ReadFigures(access_.nvml.get(), target_.pid)));
          return bytes > 0 ? 1 - now / bytes : 0;
        },
        [&] { NoteUnstoppable(target_); });
    if (answer.ok())
      return true;
    if (!IsAlive(target_)) {
      access_.file->Remove();
      Fail(NameOf(target_) + " ended meanwhile");
      return false;
    }
    if (access_.driver->HasFailed(target_.pid)) {
      access_.file->Remove();
      Fail(
          fmt::format("the checkpoint failed with {}, and {}", answer.Text(), FailedText(target_)));
      return false;
    }
    Unlock(fmt::format("the driver does not checkpoint {}: {}", NameOf(target_), answer.Text()));
    return false;
  }

  // The process continues as before.
  int Unlock(const std::string& why) {
    const DriverAnswer answer = access_.driver->Unlock(target_.pid);
    if (!answer.ok() && access_.driver->HasFailed(target_.pid)) {
      access_.file->Remove();
      return Fail(fmt::format("{}; then unlocking failed with {}, and {}", why, answer.Text(),
                              FailedText(target_)));
    }
    if (!answer.ok() && IsAlive(target_)) {
      return Fail(
          fmt::format("{}; and the driver does not unlock it: {}: `vramscope resume {}` "
                      "tries again",
                      why, answer.Text(), target_.pid));
    }
    access_.file->Remove();
    return Fail(fmt::format("{}: {}", why,
                            answer.ok() ? "the process was unlocked and continues unchanged"
                                        : "the process ended meanwhile"));
  }

  const YieldOptions& options_;
  const Target target_;
  Access access_;
  std::vector<GpuFigure> before_;
};

// For CLI11, which takes "nan" for a number in any range.
std::string CheckTimeout(const std::string& text) {
  const double seconds = util::WholeNumber<double>(text).value_or(0);
  if (seconds >= 0.001 && seconds <= 86400)
    return "";
  return fmt::format("'{}' is not a number of seconds from 0.001 to 86400", text);
}

int RunYield(const YieldOptions& options) {
  util::Result<Target> target = FindTarget(options.pid, options.of_parent);
  if (!target)
    return Fail(target.status().message());
  return Yield(options, std::move(*target)).Run();
}

}  // namespace

void RegisterYield(CLI::App& app, int* exit_code) {
  CLI::App* const yield =
      app.add_subcommand("yield", "Make a process give back all its GPU memory");
  yield->footer(
      "The driver (570 or newer) moves the GPU memory to the host, with the CUDA\n"
      "context. CUDA calls of the process wait until `vramscope resume PID`. `yield`\n"
      "first reads the process's recording for memory that the driver cannot move.");
  auto options = std::make_shared<YieldOptions>();
  yield->add_option("PID", options->pid, "The process to stop")->required()->check(CheckPid);
  yield
      ->add_option("--timeout", options->timeout_s,
                   "Wait this long for its GPU work to finish (default: 30)")
      ->option_text("SECONDS")
      ->check(CheckTimeout);
  yield->add_flag(
      "--unverified", options->unverified,
      "Also yield a process without a complete recording, which cannot be checked first");
  // For vramscope.yield_gpu() of the Python package.
  yield->add_flag("--of-parent", options->of_parent)->group("");
  yield->add_flag("--json", options->json)->group("");
  yield->callback([options, exit_code] { *exit_code = RunYield(*options); });
}

}  // namespace vramscope::cli
