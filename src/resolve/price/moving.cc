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

uint32_t Moving::MovedAt(const When& sample) const {
  const std::vector<CheckpointCall>& calls = input_.checkpoints;
  const auto first =
      std::partition_point(calls.begin(), calls.end(), [&](const CheckpointCall& call) {
        return call.when.time_ns + kMoverLivesNs <= sample.begin_ns;
      });
  uint32_t moved = kNone;
  for (auto call = first;
       call != calls.end() && call->when.begin_ns - kMoverLivesNs < sample.end_ns; ++call) {
    if (moved != kNone && call->process != moved)
      return kNone;
    moved = call->process;
  }
  return moved;
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
  const uint32_t moved = MovedAt(sample);
  if (moved == kNone && moved_ == kNone)
    return 0;
  const auto has = [&](uint32_t row) { return row == kNone ? 0 : book_.row(row).bytes; };
  const bool is_same = moved == moved_;
  const bool is_away = checkpoints_.IsCheckpointed(moved_);  // with its row
  const int64_t rows_bytes = (is_away ? 0 : has(row_)) + has(rm_row_);
  const int64_t now_bytes = is_same ? rows_bytes + bytes : 0;
  if (now_bytes < 0 || now_bytes > kLargestRm)
    return 0;
  const int64_t of_process = is_away ? 0 : now_bytes / kPageBytes * kPageBytes;
  Set(&row_, moved_, sample, of_process);
  Set(&rm_row_, kNone, sample, now_bytes - of_process);
  if (!is_same) {
    moved_ = moved;
    row_ = kNone;
  }
  return now_bytes - rows_bytes;
}

}  // namespace vramscope::resolve::price
