// SPDX-License-Identifier: Apache-2.0 Processes whose memory is off the device for a while. The
// driver moves all of it to host memory (cuCheckpointProcessCheckpoint) and back (Restore), at the
// same addresses.
//
// The process itself makes no call for that, and the tool that does may be unrecorded. Then NVML's
// figures show it:
//
//   process figure   700              0 ...              700     of the launcher's list
//   device figure    900  900  400  200  200  200  650  900
//                         |---------|              |----|
//                          in transit           in transit
//
// The memory is back when NVML's figure is, or when a driver call of the process ends, since calls
// wait until then.
#include "resolve/price/checkpoints.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "resolve/price/series.h"

namespace vramscope::resolve::price {
namespace {

using format::Part;

// The least decrease that can be a checkpoint: contexts have more.
constexpr int64_t kWorthMissing = 32 << 20;
// The mover initializes the driver before its first call and ends soon after its last one.
constexpr int64_t kMoverLivesNs = 1'000'000'000;
// NVML reports processes in driver pages.
constexpr int64_t kPageBytes = 2 << 20;

}  // namespace

int64_t Checkpoints::DeviceTotal() const {
  int64_t total = book_.of_nobody_bytes();
  for (uint32_t process = 0; process < states_.size(); ++process)
    total += states_[process].is_checkpointed ? 0 : book_.WithRm(process);
  return total;
}

void Checkpoints::OnCheckpoint(const CheckpointCall& call) {
  if (call.process >= states_.size())
    return;
  const State& state = states_[call.process];
  if (state.is_checkpointed == call.leaves) {
    // NVML showed it during the call, so the rows have it since then.
    When when = call.when;
    if (state.latest < found_.size())
      when.time_ns = std::min(when.time_ns, call.leaves ? LeftAt(call.process) : state.back_ns);
    changes_.push_back({call.process, when, call.leaves, true});
    return;
  }
  if (call.leaves)
    Leave(call.process, call.when);
  else
    Return(call.process, call.when);
}

void Checkpoints::Leave(uint32_t process, const When& when) {
  State& state = states_[process];
  state.is_checkpointed = true;
  state.latest = found_.size();
  found_.push_back({process, when.time_ns, kNever});
  changes_.push_back({process, when, true, false});
}

void Checkpoints::Return(uint32_t process, const When& when) {
  State& state = states_[process];
  state.is_checkpointed = false;
  state.back_ns = when.time_ns;
  found_[state.latest].end_ns = when.time_ns;
  changes_.push_back({process, when, false, false});
}

void Checkpoints::OnEnd(uint32_t process, int64_t time_ns) {
  if (IsCheckpointed(process))
    Return(process, {time_ns, time_ns, time_ns});
}

// Calls that allocate or request memory ended at their time.
void Checkpoints::OnCall(uint32_t process, int64_t time_ns) {
  if (IsCheckpointed(process) && time_ns > LeftAt(process))
    Return(process, {time_ns, LastAgreeing(LeftAt(process)), time_ns});
}

// The begin of the last sample at which device and ledger agreed.
int64_t Checkpoints::LastAgreeing(int64_t not_before_ns) const {
  const auto agreeing = std::find_if(samples_.rbegin(), samples_.rend(), [&](const Seen& seen) {
    return seen.begin_ns <= not_before_ns ||
           std::abs(seen.used_bytes - seen.ledger_bytes) <= kNearlyNothing;
  });
  return agreeing == samples_.rend() ? not_before_ns : std::max(agreeing->begin_ns, not_before_ns);
}

// With or without the kernel module's memory for it, which is freed with the context.
bool Checkpoints::IsBack(const DeviceSample& sample, uint32_t process) const {
  const int64_t bytes = sample.used_bytes - DeviceTotal();
  return bytes >= book_.TotalOf(process) - kNearlyNothing &&
         bytes <= book_.WithRm(process) + kNearlyNothing;
}

// Lists of processes are rare. The device's figure shows the return earlier: it equals the ledger
// with the checkpointed process.
void Checkpoints::OnSample(const DeviceSample& sample) {
  uint32_t checkpointed = kNone;
  size_t count = 0;
  for (uint32_t process = 0; process < states_.size(); ++process) {
    if (states_[process].is_checkpointed) {
      checkpointed = process;
      ++count;
    }
  }
  if (count == 1 && book_.TotalOf(checkpointed) >= kWorthMissing &&
      sample.when.begin_ns > LeftAt(checkpointed) && IsBack(sample, checkpointed))
    Return(checkpointed,
           {sample.when.time_ns, LastAgreeing(LeftAt(checkpointed)), sample.when.end_ns});
  samples_.push_back({sample.when.begin_ns, sample.used_bytes, DeviceTotal()});
  for (uint32_t process = 0; process < states_.size(); ++process)
    LookFor(process, sample.when);
}

void Checkpoints::OnFigure(const ProcessSample& figure) {
  if (figure.process >= states_.size())
    return;
  State& state = states_[figure.process];
  // All of it is back, or the figure stopped growing.
  if (state.is_checkpointed && figure.when.begin_ns > LeftAt(figure.process) &&
      figure.used_bytes > kNearlyNothing) {
    const ProcessSample* last =
        state.figures.empty() ? nullptr : &input_.figures[state.figures.back()];
    const bool settled = last != nullptr && last->used_bytes == figure.used_bytes &&
                         last->when.begin_ns > LeftAt(figure.process);
    if (settled || figure.used_bytes >= book_.TotalOf(figure.process) - kNearlyNothing)
      Return(figure.process,
             {figure.when.time_ns, LastAgreeing(LeftAt(figure.process)), figure.when.end_ns});
  }
  state.figures.push_back(static_cast<size_t>(&figure - input_.figures.data()));
  LookFor(figure.process, figure.when);
}

// The process's figure disappeared, and the device's decreased by it.
void Checkpoints::LookFor(uint32_t process, const When& when) {
  const State& state = states_[process];
  const Process& what = input_.processes[process];
  const auto has_figure = [&](size_t number) {
    return input_.figures[number].used_bytes > kNearlyNothing;
  };
  const int64_t total = book_.TotalOf(process);
  if (state.is_checkpointed || !state.has_context || when.time_ns > what.teardown_ns ||
      (what.end && when.time_ns > what.end->time_ns) || state.figures.empty() ||
      has_figure(state.figures.back()) || total < kWorthMissing ||
      input_.figures[state.figures.back()].when.begin_ns <= state.back_ns)
    return;
  const auto last = std::find_if(state.figures.rbegin(), state.figures.rend(), has_figure);
  if (last == state.figures.rend())
    return;
  const int64_t last_ns = input_.figures[*last].when.begin_ns;
  for (auto seen = samples_.rbegin(); seen != samples_.rend() && seen->begin_ns >= last_ns;
       ++seen) {
    if (seen->ledger_bytes - seen->used_bytes >= total / 2)
      return Leave(process, {when.time_ns, LastAgreeing(last_ns), when.end_ns});
  }
}

void Moving::FindMove(const When& sample) {
  const std::vector<CheckpointCall>& calls = input_.checkpoints;
  const auto first =
      std::partition_point(calls.begin(), calls.end(), [&](const CheckpointCall& call) {
        return call.when.time_ns + kMoverLivesNs <= sample.begin_ns;
      });
  uint32_t moved = kNone;
  goes_on_ = false;
  for (auto call = first;
       call != calls.end() && call->when.begin_ns - kMoverLivesNs < sample.end_ns; ++call) {
    if (moved != kNone && call->process != moved) {
      moved = kNone;
      break;
    }
    moved = call->process;
    goes_on_ |= call->when.begin_ns <= sample.time_ns && call->when.time_ns > sample.time_ns;
  }
  if (moved != moved_)
    row_ = kNone;
  moved_ = moved;
}

void Moving::Set(uint32_t* row, uint32_t process, const When& when, int64_t bytes) {
  const int64_t change = bytes - (*row == kNone ? 0 : book_.row(*row).bytes);
  if (change == 0)
    return;
  if (*row == kNone) {
    Counter counter;
    counter.process = process;
    counter.part = process == kNone ? Part::kRmInternal : Part::kOtherDriver;
    counter.trigger = process == kNone ? "" : "checkpoint";
    *row = book_.Add(std::move(counter), process);
  }
  book_.Change(*row, when, change);
}

int64_t Moving::OnSample(const When& sample, int64_t bytes) {
  const int64_t ended = moved_ == kNone ? 0 : End(sample);
  FindMove(sample);
  bytes -= ended;
  if (moved_ == kNone || bytes < 0 || bytes > kLargestRm)
    return ended;
  const bool is_away = checkpoints_.IsCheckpointed(moved_);
  const int64_t of_process = is_away ? 0 : bytes / kPageBytes * kPageBytes;
  Set(&row_, moved_, sample, of_process);
  Set(&rm_row_, kNone, sample, bytes - of_process);
  return ended + bytes;
}

int64_t Moving::End(const When& when) {
  const auto has = [&](uint32_t row) { return row == kNone ? 0 : book_.row(row).bytes; };
  // Its row is off the device with the process.
  const int64_t bytes = (checkpoints_.IsCheckpointed(moved_) ? 0 : has(row_)) + has(rm_row_);
  Set(&row_, moved_, when, 0);
  Set(&rm_row_, kNone, when, 0);
  return -bytes;
}

}  // namespace vramscope::resolve::price
