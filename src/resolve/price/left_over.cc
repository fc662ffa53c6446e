// SPDX-License-Identifier: Apache-2.0
#include "resolve/price/left_over.h"

#include <algorithm>

#include "resolve/price/series.h"

namespace vramscope::resolve::price {

using format::Part;

namespace {

// Who moves it initialises the driver before its first call, and ends soon behind its last one.
constexpr int64_t kMoverLivesNs = 1'000'000'000;
// NVML's figures of processes are in pages of the driver.
constexpr int64_t kPageBytes = 2 << 20;

}  // namespace

int64_t LeftOver::TakeBackRestored(const When& sample, int64_t bytes) {
  int64_t taken = 0;
  for (uint32_t i = 0; i < book_.rows().size() && taken < bytes; ++i) {
    const Book::Row& row = book_.row(i);
    if (row.counter.part != Part::kRmInternal || row.bytes <= 0 || !restored_[row.account])
      continue;
    const int64_t part = std::min(bytes - taken, row.bytes);
    book_.Change(i, {sample.time_ns, restored_[row.account]->begin_ns, sample.end_ns}, -part);
    taken += part;
  }
  // The first sample tells.
  std::fill(restored_.begin(), restored_.end(), std::nullopt);
  return taken;
}

bool LeftOver::HasContext(uint32_t process) const {
  return std::any_of(book_.rows().begin(), book_.rows().end(), [&](const Book::Row& row) {
    return row.account == process && row.counter.part == Part::kContext && row.of_primary &&
           row.bytes > 0;
  });
}

// The newest rows first, then the context, and last what the kernel module has for it.
int64_t LeftOver::TakeBackParked(const When& sample, int64_t bytes) {
  int64_t taken = 0;
  const auto take = [&](auto matches) {
    for (auto i = static_cast<uint32_t>(book_.rows().size()); i-- > 0 && taken < bytes;) {
      const Book::Row& row = book_.row(i);
      if (row.account >= parked_.size() || !parked_[row.account] || row.bytes <= 0 ||
          !matches(row.counter.part))
        continue;
      const int64_t part = std::min(bytes - taken, row.bytes);
      book_.Change(i, {sample.time_ns, parked_[row.account]->begin_ns, sample.end_ns}, -part);
      taken += part;
    }
  };
  take([](Part part) { return IsDriverPart(part) && part != Part::kContext; });
  take([](Part part) { return part == Part::kContext; });
  take([](Part part) { return part == Part::kRmInternal; });
  return taken;
}

uint32_t LeftOver::MovedAt(const When& sample) const {
  uint32_t moved = kNone;
  for (const CheckpointCall& call : input_.checkpoints) {
    if (call.when.begin_ns - kMoverLivesNs >= sample.end_ns ||
        call.when.end_ns + kMoverLivesNs <= sample.begin_ns || call.process == moved)
      continue;
    if (moved != kNone)
      return kNone;
    moved = call.process;
  }
  return moved;
}

void LeftOver::Set(uint32_t* row, uint32_t process, const When& when, int64_t bytes) {
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

int64_t LeftOver::OnMoving(const When& sample, int64_t bytes, const Checkpoints& checkpoints) {
  const uint32_t moved = MovedAt(sample);
  if (moved == kNone && moved_ == kNone)
    return 0;
  const auto has = [&](uint32_t row) { return row == kNone ? 0 : book_.row(row).bytes; };
  const bool is_same = moved == moved_;
  const bool is_away = checkpoints.IsCheckpointed(moved_);  // with its row
  const int64_t rows_bytes = (is_away ? 0 : has(moving_row_)) + has(moving_rm_row_);
  const int64_t now_bytes = is_same ? rows_bytes + bytes : 0;
  if (now_bytes < 0 || now_bytes > kLargestRm)
    return 0;
  const int64_t of_process = is_away ? 0 : now_bytes / kPageBytes * kPageBytes;
  Set(&moving_row_, moved_, sample, of_process);
  Set(&moving_rm_row_, kNone, sample, now_bytes - of_process);
  if (!is_same) {
    moved_ = moved;
    moving_row_ = kNone;
  }
  return now_bytes - rows_bytes;
}

}  // namespace vramscope::resolve::price
