// SPDX-License-Identifier: Apache-2.0 Managed memory is on the device after it is touched. Measured
// on an H200 (MiB of the device):
//
//   cuMemAllocManaged 64          +0
//   its first byte touched      +128   64 are resident, 64 the UVM driver's spare
//   another 300, touched        +256   364 are resident, 20 its own
//   moved to the host              0   the driver keeps the chunks for the next
//   300 freed, 64 freed    -300, -64   20 are left until the process ends
//
// No process figure of NVML includes this.
#include "resolve/price/managed.h"

#include <algorithm>
#include <map>
#include <utility>

namespace vramscope::resolve::price {
namespace {

using format::Part;

constexpr int64_t kChunkBytes = 2 << 20;
constexpr int64_t kStepBytes = 64 << 20;
// Twice the largest reserve of the UVM driver that was seen.
constexpr int64_t kMostSpareBytes = 128 << 20;

int64_t InChunks(int64_t bytes) {
  return (bytes + kChunkBytes - 1) / kChunkBytes * kChunkBytes;
}

}  // namespace

void Residency::Move(uint32_t allocation, int64_t bytes, std::vector<Change>* changes) {
  if (bytes == 0)
    return;
  chunk_bytes_ -= InChunks(resident_[allocation]);
  resident_[allocation] += bytes;
  resident_bytes_ += bytes;
  chunk_bytes_ += InChunks(resident_[allocation]);
  const uint32_t site = Allocations()[allocation].site;
  const auto same = std::find_if(changes->begin(), changes->end(),
                                 [&](const Change& change) { return change.site == site; });
  if (same == changes->end())
    changes->push_back({site, bytes});
  else
    same->bytes += bytes;
}

void Residency::Add(uint32_t allocation) {
  live_.insert(allocation);
  partial_.insert(allocation);
  live_bytes_ += Allocations()[allocation].bytes;
}

int64_t Residency::Remove(uint32_t allocation) {
  const int64_t bytes = std::exchange(resident_[allocation], 0);
  resident_bytes_ -= bytes;
  chunk_bytes_ -= InChunks(bytes);
  live_bytes_ -= Allocations()[allocation].bytes;
  live_.erase(allocation);
  partial_.erase(allocation);
  return bytes;
}

// Growth goes to touched allocations, usually the newest first. A decrease comes from the oldest.
std::vector<Residency::Change> Residency::Use(int64_t bytes) {
  std::vector<Change> changes;
  used_bytes_ += bytes;
  int64_t grows = bytes > 0 ? std::min(used_bytes_, live_bytes_) - resident_bytes_ : 0;
  while (grows > 0 && !partial_.empty()) {
    const uint32_t newest = *partial_.rbegin();
    const int64_t room = Allocations()[newest].bytes - resident_[newest];
    Move(newest, std::min(grows, room), &changes);
    grows -= std::min(grows, room);
    if (grows >= 0 && resident_[newest] == Allocations()[newest].bytes)
      partial_.erase(newest);
  }
  for (auto live = live_.begin(); live != live_.end() && resident_bytes_ > used_bytes_; ++live) {
    Move(*live, -std::min(resident_bytes_ - used_bytes_, resident_[*live]), &changes);
    partial_.insert(*live);
  }
  return changes;
}

Managed::Managed(const DeviceInput& input, Book* book)
    : input_(input), book_(*book), residency_(input), is_active_(input.processes.size()) {
  if (input.managed_allocations.empty())
    return;
  Counter counter;
  counter.part = Part::kUvmDriver;
  row_ = book_.Add(std::move(counter), kNone);
}

int64_t Managed::LowestFrom(int64_t time_ns) const {
  int64_t bytes = 0;
  int64_t lowest = INT64_MAX;
  for (const Step& step : book_.row(row_).steps) {
    if (step.when.time_ns > time_ns)
      lowest = std::min(lowest, bytes);
    bytes += step.bytes;
  }
  return std::max<int64_t>(std::min(lowest, bytes), 0);
}

// It is never negative.
int64_t Managed::Change(const When& when, int64_t bytes) {
  const std::vector<Step>& steps = book_.row(row_).steps;
  const bool is_last = steps.empty() || steps.back().when.time_ns <= when.time_ns;
  bytes = std::max(bytes, is_last ? -book_.row(row_).bytes : -LowestFrom(when.time_ns));
  book_.CorrectAt(row_, when, bytes);
  if (bytes != 0)
    residency_.Use(bytes);
  return bytes;
}

const When& Managed::WhenOf(const ManagedMove& move) const {
  const uint32_t site = input_.managed_allocations[move.allocation].site;
  const std::optional<When>& end = input_.processes[input_.managed_sites[site]].end;
  return move.frees && end && end->time_ns == move.when.time_ns ? *end : move.when;
}

int64_t Managed::OnMove(const ManagedMove& move) {
  const ManagedAllocation& allocation = input_.managed_allocations[move.allocation];
  const uint32_t process = input_.managed_sites[allocation.site];
  if (!move.frees) {
    active_processes_ += is_active_[process] ? 0u : 1u;
    is_active_[process] = true;
    if (last_figure_ns_ == INT64_MIN)
      last_figure_ns_ = move.when.begin_ns;
    residency_.Add(move.allocation);
    return 0;
  }
  // Its chunks are freed whole. The driver's own bytes in them count in the others' chunks.
  int64_t bytes = InChunks(residency_.Remove(move.allocation));
  bytes = std::clamp<int64_t>(residency_.used_bytes() - residency_.chunk_bytes(), 0, bytes);
  freed_bytes_ += bytes;
  unpaid_ = {process, unpaid_.bytes + InChunks(allocation.bytes) - bytes};
  return Change(WhenOf(move), -bytes);
}

Managed::Unpaid Managed::TakeUnpaid() {
  return std::exchange(unpaid_, {});
}

int64_t Managed::OnFigure(const When& figure, int64_t bytes) {
  const int64_t since_ns = std::exchange(last_figure_ns_, figure.begin_ns);
  return OnCalls({figure.time_ns, std::min(since_ns, figure.begin_ns), figure.end_ns}, bytes);
}

int64_t Managed::RoomBytes() const {
  const auto live_count = static_cast<int64_t>(residency_.live_count());
  // No two allocations share a chunk.
  const int64_t most =
      live_count == 0 ? 0 : residency_.live_bytes() + live_count * kChunkBytes + kMostSpareBytes;
  return std::max<int64_t>(most - residency_.used_bytes(), 0);
}

int64_t Managed::OnCalls(const When& calls, int64_t bytes) {
  return Change(calls, std::min(bytes, RoomBytes() + std::exchange(freed_bytes_, 0)));
}

// The growth is all memory that was not resident, or whole steps of it; or the driver keeps freed
// chunks.
int64_t Managed::LikelyOf(int64_t bytes) const {
  const auto live_count = static_cast<int64_t>(residency_.live_count());
  const int64_t wanted = residency_.live_bytes() <= residency_.resident_bytes()
                             ? 0
                             : residency_.live_bytes() + live_count * (kChunkBytes - 1) +
                                   kChunkBytes - residency_.used_bytes();
  const int64_t all = (std::max<int64_t>(wanted, 0) + kStepBytes - 1) / kStepBytes * kStepBytes;
  return std::max(std::min(all, bytes / kStepBytes * kStepBytes), std::min(bytes, freed_bytes_));
}

int64_t Managed::OnEnd(uint32_t process, const When& end) {
  if (!is_active_[process])
    return 0;
  is_active_[process] = false;
  return --active_processes_ == 0 ? Change(end, -residency_.used_bytes()) : 0;
}

void Managed::Split() {
  if (row_ == kNone)
    return;
  Residency residency(input_);
  std::map<uint32_t, uint32_t> rows;  // by site
  const std::vector<Step> steps = book_.row(row_).steps;
  std::vector<Step> own = steps;
  const auto move = [&](uint32_t site, const When& when, int64_t bytes) {
    auto [row, added] = rows.try_emplace(site, kNone);
    if (added) {
      Counter counter;
      counter.part = Part::kManaged;
      counter.process = input_.managed_sites[site];
      counter.managed_site = site;
      row->second = book_.Add(std::move(counter), counter.process);
    }
    book_.Change(row->second, when, bytes);
    own.push_back({when, row_, -bytes});
  };
  auto next = input_.managed_moves.begin();
  const auto apply_until = [&](int64_t time_ns) {
    for (; next != input_.managed_moves.end() && next->when.time_ns <= time_ns; ++next) {
      if (!next->frees)
        residency.Add(next->allocation);
      else if (const int64_t bytes = residency.Remove(next->allocation); bytes != 0)
        move(input_.managed_allocations[next->allocation].site, WhenOf(*next), -bytes);
    }
  };
  for (const Step& step : steps) {
    apply_until(step.when.time_ns);
    for (const Residency::Change& change : residency.Use(step.bytes))
      move(change.site, step.when, change.bytes);
  }
  apply_until(INT64_MAX);
  book_.SetSteps(row_, std::move(own));
}

}  // namespace vramscope::resolve::price
