// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
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

namespace vramscope::cli {
namespace {

using format::CheckpointKind;

// What a context takes of the device that the process's own figure does not have.
constexpr uint64_t kDeviceMarginBytes = uint64_t{32} << 20;

struct ResumeOptions {
  int pid = 0;
  bool unverified = false;
  bool of_parent = false;
  bool json = false;
};

class Resume {
 public:
  Resume(const ResumeOptions& options, Target target)
      : options_(options), target_(std::move(target)) {}

  int Run() {
    util::Result<Access> access = OpenAccess(target_);
    if (!access)
      return Fail(access.status().message());
    access_ = std::move(*access);
    yielded_ = access_.file->Read(target_.start_ticks);
    switch (access_.state) {
      case CheckpointState::kRunning:
        access_.file->Remove();
        return Fail(NameOf(target_) + " has not yielded: it is running");
      case CheckpointState::kLocked:
        return UnlockOnly();
      case CheckpointState::kCheckpointed:
        return Restore();
      case CheckpointState::kFailed:
        break;
    }
    access_.file->Remove();
    return Fail(FailedText(target_));
  }

 private:
  // A `yield` or `resume` that was killed half way.
  int UnlockOnly() {
    if (!yielded_ && !options_.unverified) {
      return Fail(
          fmt::format("another program than vramscope locked {}: --unverified unlocks it anyway",
                      NameOf(target_)));
    }
    if (const DriverAnswer answer = access_.driver->Unlock(target_.pid); !answer.ok())
      return NotUnlocked("", answer);
    access_.file->Remove();
    Note(NameOf(target_) + " was locked and had its memory: it continues");
    return kExitOk;
  }

  int Restore() {
    if (const int code = CheckRoom(); code != kExitOk)
      return code;
    const HeldInterrupts interrupts;
    const std::vector<GpuFigure> before = ReadFigures(access_.nvml.get(), target_.pid);
    const int64_t begin_ns = base::MonotonicNs();
    const double bytes = yielded_ ? static_cast<double>(yielded_->bytes) : 0;
    const DriverAnswer restored = RunShown(
        "bringing back the device memory of " + NameOf(target_),
        [&] { return access_.driver->Restore(target_.pid); },
        [&] {
          const auto now =
              static_cast<double>(ProcessBytes(ReadFigures(access_.nvml.get(), target_.pid)));
          return bytes > 0 ? now / bytes : 0;
        },
        [&] { NoteUnstoppable(target_); });
    if (!restored.ok())
      return NotRestored(restored);
    const int64_t restored_ns = base::MonotonicNs();
    if (const DriverAnswer answer = access_.driver->Unlock(target_.pid); !answer.ok())
      return NotUnlocked("its memory is back, but ", answer);
    const int64_t end_ns = base::MonotonicNs();
    const std::vector<GpuFigure> after = ReadFigures(access_.nvml.get(), target_.pid);
    access_.file->Remove();
    // The other way round: processes that exist now and did not.
    Outcome outcome{.verb = "has back",
                    .bytes = 0,
                    .duration_ns = end_ns - begin_ns,
                    .gpus = FreedBetween(after, before)};
    for (const FreedOnGpu& gpu : outcome.gpus)
      outcome.bytes += gpu.bytes;
    NoteInRecording(yielded_ ? yielded_->live_directory : target_.live_directory, target_,
                    {{CheckpointKind::kRestore, begin_ns, restored_ns},
                     {CheckpointKind::kUnlock, restored_ns, end_ns}},
                    outcome);
    return PrintOutcome(target_, outcome, options_.json) ? kExitOk : kExitError;
  }

  int NotUnlocked(const std::string& before, const DriverAnswer& answer) {
    if (!IsAlive(target_)) {
      access_.file->Remove();
      return Fail(NameOf(target_) + " ended meanwhile");
    }
    if (access_.driver->HasFailed(target_.pid)) {
      access_.file->Remove();
      return Fail(fmt::format("{}unlocking failed with {}, and {}", before, answer.Text(),
                              FailedText(target_)));
    }
    return Fail(
        fmt::format("{}the driver does not unlock {}: {}: `vramscope resume {}` tries again",
                    before, NameOf(target_), answer.Text(), target_.pid));
  }

  int CheckRoom() {
    if (!yielded_) {
      if (options_.unverified)
        return kExitOk;
      return Fail(fmt::format(
          "another program than vramscope checkpointed {}, so the memory that it needs is unknown: "
          "--unverified resumes it anyway",
          NameOf(target_)));
    }
    for (const GpuFigure& gpu : ReadFigures(access_.nvml.get(), target_.pid)) {
      const auto device = std::find_if(yielded_->devices.begin(), yielded_->devices.end(),
                                       [&](const YieldedDevice& d) { return d.uuid == gpu.uuid; });
      if (device == yielded_->devices.end())
        continue;
      const uint64_t needed = device->bytes + kDeviceMarginBytes;
      if (gpu.free_bytes < needed) {
        Fail(fmt::format(
            "GPU {} ({}) has no room for {}: {} are needed, {} are free, {} are missing: nothing "
            "was changed",
            gpu.index, gpu.name, NameOf(target_), util::FormatBytes(needed),
            util::FormatBytes(gpu.free_bytes), util::FormatBytes(needed - gpu.free_bytes)));
        return NoRoom();
      }
    }
    return kExitOk;
  }

  // The Python package tries again then.
  int NoRoom() const { return options_.json ? kExitLimitExceeded : kExitError; }

  int NotRestored(const DriverAnswer& answer) {
    if (!IsAlive(target_)) {
      access_.file->Remove();
      return Fail(NameOf(target_) + " ended meanwhile");
    }
    CheckpointState state{};
    if (!access_.driver->GetState(target_.pid, &state).ok() || state == CheckpointState::kFailed) {
      access_.file->Remove();
      return Fail(
          fmt::format("restoring failed with {}, and {}", answer.Text(), FailedText(target_)));
    }
    Fail(
        fmt::format("the driver does not restore {}: {}: its memory is still on the host, "
                    "and `resume` can be tried again",
                    NameOf(target_), answer.Text()));
    return answer.out_of_memory() ? NoRoom() : kExitError;
  }

  const ResumeOptions& options_;
  const Target target_;
  Access access_;
  std::optional<YieldState> yielded_;
};

int RunResume(const ResumeOptions& options) {
  util::Result<Target> target = FindTarget(options.pid, options.of_parent);
  if (!target)
    return Fail(target.status().message());
  return Resume(options, std::move(*target)).Run();
}

}  // namespace

void RegisterResume(CLI::App& app, int* exit_code) {
  CLI::App* const resume =
      app.add_subcommand("resume", "Continue a process that gave its GPU memory back");
  auto options = std::make_shared<ResumeOptions>();
  resume->add_option("PID", options->pid, "The process to continue")->required()->check(CheckPid);
  resume->add_flag("--unverified", options->unverified,
                   "Also resume a process that another tool checkpointed");
  // For vramscope.yield_gpu() of the Python package.
  resume->add_flag("--of-parent", options->of_parent)->group("");
  resume->add_flag("--json", options->json)->group("");
  resume->callback([options, exit_code] { *exit_code = RunResume(*options); });
}

}  // namespace vramscope::cli
