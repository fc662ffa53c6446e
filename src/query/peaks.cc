// SPDX-License-Identifier: Apache-2.0
#include "query/peaks.h"

#include <algorithm>
#include <cstdint>

#include "query/sweep.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

class PeakFinder {
 public:
  // Device 0 is none: what is on it, or put there, makes no peak.
  PeakFinder(const Cells& cells,
             std::vector<TimeSpan> spans,
             const std::function<bool(tables::AccountId)>& counts)
      : devices_(spans.size()) {
    for (const Cell& cell : cells.all()) {
      const bool known = cell.device.value < spans.size() && counts(cell.account);
      cells_.push_back({known ? cell.device.value : 0, IsUse(cell.part) ? int64_t{-1} : 0,
                        cell.estimated == tables::Estimated::kByFreeMemory ? int64_t{-1} : 0});
    }
    for (size_t i = 0; i < spans.size(); ++i) {
      devices_[i].span = spans[i];
      // Before anything moved, all are as high as they were.
      devices_[i].changed = true;
      changed_.push_back(static_cast<uint32_t>(i));
    }
    changed_count_ = changed_.size();
  }

  void OnMove(uint32_t cell, int64_t bytes) {
    const CellFacts& facts = cells_[cell];
    Device& device = devices_[facts.device];
    device.now.total += bytes;
    device.now.used += bytes & facts.use;
    device.estimated += bytes & facts.estimated;
    Changed(&device, facts.device);
  }

  void OnTransfer(uint32_t from, uint32_t to, int64_t bytes) {
    const CellFacts& gives = cells_[from];
    const CellFacts& takes = cells_[to];
    Device& device = devices_[gives.device];
    device.now.used += (bytes & takes.use) - (bytes & gives.use);
    device.estimated += (bytes & takes.estimated) - (bytes & gives.estimated);
    Changed(&device, gives.device);
  }

  void OnState(int64_t first_ns, int64_t last_ns) {
    size_t kept = 0;
    for (size_t i = 0; i < changed_count_; ++i) {
      const uint32_t index = changed_[i];
      Device& device = devices_[index];
      const int64_t time_ns = std::max(first_ns, device.span.from_ns + 1);
      // Its span begins later.
      if (time_ns > last_ns) {
        changed_[kept++] = index;
        continue;
      }
      device.changed = false;
      if (time_ns > device.span.to_ns || (device.has_peak && !(device.now > device.highest)))
        continue;
      device.has_peak = true;
      device.highest = device.now;
      device.peak.time_ns = time_ns;
      device.peak.bytes = static_cast<uint64_t>(std::max<int64_t>(device.now.total, 0));
      device.peak.estimated_bytes = static_cast<uint64_t>(std::max<int64_t>(device.estimated, 0));
    }
    changed_count_ = kept;
  }

  // What a later piece of time had: of equally high instants the first counts.
  void Append(const PeakFinder& later) {
    for (size_t i = 0; i < devices_.size(); ++i) {
      Device& device = devices_[i];
      const Device& other = later.devices_[i];
      device.used = device.used || other.used;
      if (!other.has_peak || (device.has_peak && !(other.highest > device.highest)))
        continue;
      device.has_peak = true;
      device.highest = other.highest;
      device.peak = other.peak;
    }
  }

  std::vector<tables::PeakRow> Take() {
    std::vector<tables::PeakRow> peaks;
    for (uint32_t i = 1; i < devices_.size(); ++i) {
      if (!devices_[i].has_peak || (!devices_[i].used && devices_[i].span == TimeSpan{}))
        continue;
      devices_[i].peak.device = tables::DeviceId{i};
      peaks.push_back(devices_[i].peak);
    }
    return peaks;
  }

 private:
  struct CellFacts {
    uint32_t device = 0;
    int64_t use = 0;  // masks: all bits of what counts, none of what does not
    int64_t estimated = 0;
  };
  struct Device {
    TimeSpan span;
    Height now;
    int64_t estimated = 0;
    bool used = false;
    bool changed = false;
    bool has_peak = false;
    Height highest;
    tables::PeakRow peak;
  };

  void Changed(Device* device, uint32_t index) {
    device->used = true;
    if (device->changed)
      return;
    device->changed = true;
    changed_[changed_count_++] = index;
  }

  std::vector<CellFacts> cells_;
  std::vector<Device> devices_;
  std::vector<uint32_t> changed_;  // the first of them: devices, since they were last looked at
  size_t changed_count_ = 0;
};

}  // namespace

util::Result<std::vector<tables::PeakRow>> FindPeaks(const tables::Recording& recording,
                                                     const std::vector<TimeSpan>& spans) {
  return FindPeaks(recording, spans, [](tables::ProcessId) { return true; });
}

util::Result<std::vector<tables::PeakRow>> FindPeaks(
    const tables::Recording& recording,
    const std::vector<TimeSpan>& spans,
    const std::function<bool(tables::ProcessId)>& counts) {
  const Cells cells(recording);
  const auto account_counts = [&](tables::AccountId account) {
    return counts(RowOf(recording.tables().accounts, account).process);
  };
  TimeSpan all{INT64_MAX, INT64_MIN};
  for (size_t i = 1; i < spans.size(); ++i) {
    all.from_ns = std::min(all.from_ns, spans[i].from_ns);
    all.to_ns = std::max(all.to_ns, spans[i].to_ns);
  }
  const std::vector<TimeSpan> pieces = PiecesOf(recording, all);
  auto finders = SweepPieces(recording, cells, pieces, PeakFinder(cells, spans, account_counts));
  if (!finders.ok())
    return finders.status();
  PeakFinder& whole = finders->front();
  for (size_t i = 1; i < finders->size(); ++i)
    whole.Append((*finders)[i]);
  return whole.Take();
}

util::Result<std::vector<tables::PeakRow>> FindPeaks(const tables::Recording& recording) {
  return FindPeaks(recording, std::vector<TimeSpan>(recording.tables().devices.size()));
}

}  // namespace vramscope::query
