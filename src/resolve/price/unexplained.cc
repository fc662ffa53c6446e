// SPDX-License-Identifier: Apache-2.0
#include "resolve/price/unexplained.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "resolve/price/series.h"

namespace vramscope::resolve::price {
namespace {

// Smaller differences get no row; query/core/residual.h calls them small.
int64_t Small(int64_t used_bytes) {
  return std::max(kNearlyNothing, used_bytes / 1000);
}

}  // namespace

std::vector<StepRef> Unexplained::OnQuiet(const DeviceSample& sample, int64_t bytes) {
  std::vector<StepRef> steps;
  last_ns_ = sample.when.time_ns;
  const When since = agreed_.value_or(sample.when);
  // Memory that appeared without a cause may disappear without one.
  for (auto row = rows_.rbegin(); row != rows_.rend() && bytes < 0; ++row) {
    const int64_t back = std::min(-bytes, book_.row(*row).bytes);
    if (back <= 0)
      continue;
    steps.push_back(
        book_.Change(*row, {sample.when.time_ns, since.begin_ns, sample.when.end_ns}, -back));
    bytes += back;
  }
  bytes -= missing_bytes_;
  if (std::abs(bytes) <= Small(sample.used_bytes)) {
    agreed_ = sample.when;
    seen_.reset();
    return steps;
  }
  if (!seen_ || (seen_->bytes < 0) != (bytes < 0)) {
    seen_ = Seen{since, sample.when, bytes};
    return steps;
  }
  const Seen seen = *std::exchange(seen_, std::nullopt);
  agreed_ = sample.when;
  // Missing bytes are back.
  const int64_t found = std::min(std::max<int64_t>(bytes, 0), -missing_bytes_);
  missing_bytes_ += found;
  bytes -= found;
  if (found > 0 && !missing_.empty() && missing_.back().bytes == -found &&
      IsMovedIn(-found, missing_.back().when.time_ns, sample.when.time_ns))
    missing_.pop_back();
  if (bytes == 0)
    return steps;
  const When when{seen.first.time_ns, seen.since.begin_ns, seen.first.end_ns};
  if (bytes < 0) {
    missing_.push_back({when, bytes});
    missing_bytes_ += bytes;
    return steps;
  }
  Counter counter;
  counter.part = format::Part::kUnexplained;
  counter.came = when;
  rows_.push_back(book_.Add(std::move(counter), kNone));
  steps.push_back(book_.Change(rows_.back(), when, std::min(bytes, seen.bytes)));
  return steps;
}

void Unexplained::OnReason(const When& when) {
  for (; !missing_.empty() && missing_.back().when.time_ns >= when.begin_ns; missing_.pop_back())
    missing_bytes_ -= missing_.back().bytes;
  // Some of it may have come back earlier.
  missing_bytes_ = std::min<int64_t>(missing_bytes_, 0);
  seen_.reset();
}

void Unexplained::MoveToManaged(int64_t bytes, Managed* managed) {
  for (auto row = rows_.rbegin(); row != rows_.rend() && bytes > 0; ++row) {
    const When came = *book_.row(*row).counter.came;
    if (came.time_ns < managed->began_ns())
      return;
    const int64_t moved = std::min(bytes, book_.LowestFrom(*row, came.time_ns));
    book_.Correct({*row, 0}, -moved);  // the step that made the row
    managed->Correct(came, moved);
    bytes -= moved;
  }
}

// One thread's call shrinks a pool, and another thread's call reads the pool's size first: samples
// between the two have less than the rows.
bool Unexplained::IsMovedIn(int64_t bytes, int64_t from_ns, int64_t to_ns) const {
  const auto first =
      std::partition_point(input_.moves.begin(), input_.moves.end(),
                           [&](const Move& move) { return move.when.time_ns <= from_ns; });
  const auto last = std::partition_point(
      first, input_.moves.end(), [&](const Move& move) { return move.when.time_ns <= to_ns; });
  return std::any_of(first, last, [&](const Move& move) { return move.bytes == bytes; });
}

std::vector<Missing> Unexplained::TakeMissing() {
  if (missing_.empty())
    return {};
  // The last difference may be reported without two samples after it.
  const Missing& last = missing_.back();
  const bool is_back = seen_ && seen_->bytes >= -last.bytes;
  const int64_t from_ns = is_back ? last.when.time_ns : std::max(last.when.time_ns, last_ns_);
  if (IsMovedIn(last.bytes, from_ns, INT64_MAX))
    missing_.pop_back();
  return std::move(missing_);
}

}  // namespace vramscope::resolve::price
