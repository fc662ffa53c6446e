// SPDX-License-Identifier: Apache-2.0
#include "resolve/price/moving.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "resolve/price/series.h"

namespace vramscope::resolve::price {
namespace {

using format::Part;

// Who moves it initialises the driver before its first call, and ends soon behind its last one.
constexpr int64_t kMoverLivesNs = 1'000'000'000;
// NVML's figures of processes are in pages of the driver.
constexpr int64_t kPageBytes = 2 << 20;

}  // namespace

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
  // Its row is away with the process.
  const int64_t bytes = (checkpoints_.IsCheckpointed(moved_) ? 0 : has(row_)) + has(rm_row_);
  Set(&row_, moved_, when, 0);
  Set(&rm_row_, kNone, when, 0);
  return -bytes;
}

}  // namespace vramscope::resolve::price
