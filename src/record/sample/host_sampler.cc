// SPDX-License-Identifier: Apache-2.0
#include "record/sample/host_sampler.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "pipeline/survivors.h"
#include "util/file.h"

namespace vramscope::cli {
namespace {

constexpr std::chrono::milliseconds kHostPeriod{100};
constexpr std::chrono::seconds kTreePeriod{1};
constexpr uint64_t kWriteEveryNs = 1'000'000'000;
constexpr uint64_t kSmallestMoveBytes = 1 << 20;
constexpr uint64_t kMoveShare = 64;

// The line "KEY:\t   12345 kB", in bytes; 0 if there is none.
uint64_t KilobytesOf(std::string_view status, std::string_view key) {
  const size_t line = status.find(key);
  if (line == std::string_view::npos)
    return 0;
  const size_t at = status.find_first_not_of(" \t", line + key.size());
  uint64_t kib = 0;
  if (at != std::string_view::npos)
    std::from_chars(status.data() + at, status.data() + status.size(), kib);
  return kib < uint64_t{1} << 50 ? kib * 1024 : 0;
}

bool HasMoved(uint64_t before_bytes, uint64_t now_bytes) {
  const uint64_t moved = std::max(before_bytes, now_bytes) - std::min(before_bytes, now_bytes);
  return moved >= std::max(kSmallestMoveBytes, before_bytes / kMoveShare);
}

bool IsDue(const format::HostSample& written, const format::HostSample& sample) {
  return sample.time - written.time >= kWriteEveryNs || sample.kills != written.kills ||
         sample.limit != written.limit || HasMoved(written.resident, sample.resident) ||
         HasMoved(written.used, sample.used);
}

}  // namespace

HostUse ParseHostUse(std::string_view status) {
  return {KilobytesOf(status, "\nVmRSS:"), KilobytesOf(status, "\nRssShmem:")};
}

HostSampler::HostSampler(LiveFileWriter& file, std::string live_directory, pid_t root)
    : Watch(std::move(live_directory)),
      file_(file),
      root_(root),
      pace_(kHostPeriod),
      tree_pace_(kTreePeriod) {}

bool HostSampler::Look() {
  pace_.Begin();
  Sample();
  pace_.End();
  return true;
}

void HostSampler::Sample() {
  const auto now = std::chrono::steady_clock::now();
  if (now >= next_tree_) {
    tree_pace_.Begin();
    processes_ = ProcessesFrom(root_);
    tree_pace_.End();
    next_tree_ = now + tree_pace_.Pause();
  }
  format::HostSample sample;
  sample.time = static_cast<uint64_t>(base::MonotonicNs());
  for (const pid_t pid : processes_) {
    const std::optional<std::string> status = util::ReadProc(pid, "status");
    const HostUse use = ParseHostUse(status ? *status : "");
    if (use.resident_bytes == 0)
      continue;
    ++sample.processes;
    sample.resident += use.resident_bytes;
    sample.shared += use.shared_bytes;
    if (use.resident_bytes > sample.largest_resident) {
      sample.largest_resident = use.resident_bytes;
      sample.largest_pid = static_cast<uint64_t>(pid);
    }
  }
  FindGroups();
  ReadGroups(&sample);
  if (written_.time != 0 && !IsDue(written_, sample)) {
    last_ = sample;
    is_last_written_ = false;
    return;
  }
  // What it was just before it moved.
  if (last_.time != 0 && !is_last_written_)
    file_.Write(last_);
  file_.Write(sample);
  written_ = last_ = sample;
  is_last_written_ = true;
}

// A program can move itself to another group. A dead one may be listed in the root group.
void HostSampler::FindGroups() {
  const auto found = std::make_unique<base::MemoryGroups>();
  if (!found->Find(std::to_string(root_).c_str()) || !IsRunning(root_))
    return;
  if (std::string_view(found->own_group()) != groups_.own_group())
    kills_before_ = found->OutOfMemoryKills() - last_.kills;
  groups_ = *found;
}

void HostSampler::ReadGroups(format::HostSample* sample) const {
  uint64_t least_free = UINT64_MAX;
  for (size_t i = 0; i < groups_.count(); ++i) {
    const uint64_t limit = groups_.LimitBytes(i);
    const uint64_t free = groups_.FreeBytes(i, limit);
    if (limit == UINT64_MAX || free >= least_free)
      continue;
    least_free = free;
    sample->limit = limit;
    sample->used = limit - std::min(limit, free);
  }
  const uint64_t kills = groups_.OutOfMemoryKills();
  sample->kills = kills > kills_before_ ? kills - kills_before_ : 0;
}

void HostSampler::WriteLast() {
  if (last_.time != 0 && !is_last_written_)
    file_.Write(last_);
  format::HostSample sample;
  sample.time = static_cast<uint64_t>(base::MonotonicNs());
  ReadGroups(&sample);
  file_.Write(sample);
}

}  // namespace vramscope::cli
