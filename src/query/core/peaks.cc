// SPDX-License-Identifier: Apache-2.0
#include "query/core/peaks.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "query/core/aggregator.h"
#include "query/core/instant.h"
#include "query/core/live_set.h"
#include "query/core/sweep.h"
#include "query/dimensions/cells.h"
#include "query/dimensions/dimensions.h"
#include "tables/imported.h"
#include "tables/row_of.h"
#include "util/budget.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

struct PeakOfDevice {
  TimeSpan span;
  Height now;
  int64_t estimated = 0;
  int64_t allocated = 0;
  int64_t most_allocated = 0;
  bool used = false;
  bool changed = false;
  bool has_peak = false;
  Height highest;
  tables::PeakRow peak;
  tables::PeakRow allocated_peak;
};

class PeakFinder : SweepSums<PeakOfDevice> {
 public:
  // Device 0 is none: what is on it, or put there, makes no peak. `device_of`: which one a cell is
  // on.
  PeakFinder(const Cells& cells,
             std::vector<TimeSpan> spans,
             const std::function<bool(const Cell&)>& counts,
             tables::DeviceId Cell::*device_of) {
    for (const Cell& cell : cells.all()) {
      const uint32_t device = (cell.*device_of).value;
      const bool known = device < spans.size() && counts(cell);
      cells_.push_back({known ? device : 0, MaskOf(IsUse(cell.part)),
                        MaskOf(cell.estimated == tables::Estimated::kByFreeMemory),
                        MaskOf(cell.allocated)});
    }
    for (const TimeSpan& span : spans)
      items_.emplace_back().span = span;
    // A device without any change has a peak, too.
    StartChanged();
  }

  void OnMove(uint32_t cell, int64_t bytes) {
    const CellFacts& facts = cells_[cell];
    PeakOfDevice& device = items_[facts.device];
    device.now.total += bytes;
    device.now.used += bytes & facts.use;
    device.estimated += bytes & facts.estimated;
    device.allocated += bytes & facts.allocated;
    device.used = true;
    Changed(facts.device);
  }

  void OnTransfer(uint32_t from, uint32_t to, int64_t bytes) {
    const CellFacts& gives = cells_[from];
    const CellFacts& takes = cells_[to];
    // One of them may not count.
    if (gives.device != takes.device) {
      OnMove(from, -bytes);
      return OnMove(to, bytes);
    }
    PeakOfDevice& device = items_[gives.device];
    device.now.used += (bytes & takes.use) - (bytes & gives.use);
    device.estimated += (bytes & takes.estimated) - (bytes & gives.estimated);
    device.allocated += (bytes & takes.allocated) - (bytes & gives.allocated);
    device.used = true;
    Changed(gives.device);
  }

  void OnState(int64_t first_ns, int64_t last_ns) {
    LookAtChanged([&](PeakOfDevice& device) {
      const int64_t time_ns = std::max(first_ns, device.span.from_ns + 1);
      // Its span begins later.
      if (time_ns > last_ns)
        return false;
      if (time_ns > device.span.to_ns)
        return true;
      if (!device.has_peak || device.allocated > device.most_allocated) {
        device.most_allocated = device.allocated;
        device.allocated_peak.time_ns = time_ns;
        device.allocated_peak.bytes = static_cast<uint64_t>(std::max<int64_t>(device.allocated, 0));
      }
      if (device.has_peak && !(device.now > device.highest))
        return true;
      device.has_peak = true;
      device.highest = device.now;
      device.peak.time_ns = time_ns;
      device.peak.bytes = static_cast<uint64_t>(std::max<int64_t>(device.now.total, 0));
      device.peak.estimated_bytes = static_cast<uint64_t>(std::max<int64_t>(device.estimated, 0));
      return true;
    });
  }

  // What a later piece of time had: of equally high instants the first counts.
  void Append(const PeakFinder& later) {
    for (size_t i = 0; i < items_.size(); ++i) {
      PeakOfDevice& device = items_[i];
      const PeakOfDevice& other = later.items_[i];
      device.used = device.used || other.used;
      if (!other.has_peak)
        continue;
      const bool had_peak = std::exchange(device.has_peak, true);
      if (!had_peak || other.highest > device.highest) {
        device.highest = other.highest;
        device.peak = other.peak;
      }
      if (!had_peak || other.most_allocated > device.most_allocated) {
        device.most_allocated = other.most_allocated;
        device.allocated_peak = other.allocated_peak;
      }
    }
  }

  Peaks Take() {
    Peaks peaks;
    for (uint32_t i = 1; i < items_.size(); ++i) {
      PeakOfDevice& device = items_[i];
      if (!device.has_peak || (!device.used && device.span == TimeSpan{}))
        continue;
      device.peak.device = device.allocated_peak.device = tables::DeviceId{i};
      peaks.highest.push_back(device.peak);
      peaks.allocated.push_back(device.allocated_peak);
    }
    return peaks;
  }

 private:
  struct CellFacts {
    uint32_t device = 0;
    int64_t use = 0;  // MaskOf(), as the others
    int64_t estimated = 0;
    int64_t allocated = 0;
  };
  std::vector<CellFacts> cells_;
};

util::Result<Peaks> FindPeaksOf(const tables::Recording& recording,
                                const Cells& cells,
                                const std::vector<TimeSpan>& spans,
                                const std::function<bool(const Cell&)>& counts,
                                tables::DeviceId Cell::*device_of = &Cell::device) {
  TimeSpan all{INT64_MAX, INT64_MIN};
  for (size_t i = 1; i < spans.size(); ++i) {
    all.from_ns = std::min(all.from_ns, spans[i].from_ns);
    all.to_ns = std::max(all.to_ns, spans[i].to_ns);
  }
  const std::vector<TimeSpan> pieces = PiecesOf(recording, all);
  VRAMSCOPE_ASSIGN_OR_RETURN(
      auto finders,
      SweepPieces(recording, cells, pieces, PeakFinder(cells, spans, counts, device_of)));
  PeakFinder& whole = finders.front();
  for (size_t i = 1; i < finders.size(); ++i)
    whole.Append(finders[i]);
  return whole.Take();
}

std::string NoteKey(const tables::Tables& tables, tables::DeviceId device) {
  const tables::DeviceRow& row = RowOf(tables.devices, device);
  return kAllocatedPeakNote + DeviceMark(row.kind, row.index);
}

// All that is known in full: of a ring its history.
std::vector<TimeSpan> WholeSpans(const tables::Tables& tables) {
  TimeSpan span;
  if (tables.session.HasPast())
    span.from_ns = tables.session.history_ns;
  return std::vector<TimeSpan>(tables.devices.size(), span);
}

}  // namespace

util::Result<std::vector<tables::PeakRow>> FindPeaks(const tables::Recording& recording,
                                                     const std::vector<TimeSpan>& spans) {
  return FindPeaks(recording, spans, [](tables::ProcessId) { return true; });
}

util::Result<std::vector<tables::PeakRow>> FindPeaks(
    const tables::Recording& recording,
    const std::vector<TimeSpan>& spans,
    const std::function<bool(tables::ProcessId)>& counts) {
  auto peaks = FindPeaksOf(recording, Cells(recording), spans, [&](const Cell& cell) {
    return counts(RowOf(recording.tables().accounts, cell.account).process);
  });
  if (!peaks.ok())
    return peaks.status();
  return std::move(peaks->highest);
}

util::Result<std::vector<tables::PeakRow>> FindPeaksWithout(
    const tables::Recording& recording,
    const std::function<bool(const tables::SiteRow& site)>& leaves_out) {
  auto peaks = FindPeaksOf(recording, Cells(recording, leaves_out), WholeSpans(recording.tables()),
                           [](const Cell& cell) { return cell.group == 0; });
  if (!peaks.ok())
    return peaks.status();
  return std::move(peaks->highest);
}

util::Result<std::vector<tables::PeakRow>> FindUnbackedPeaks(const tables::Recording& recording) {
  const std::vector<tables::SiteRow>& sites = recording.tables().sites;
  if (std::all_of(sites.begin(), sites.end(), [](const auto& site) { return site.unbacked == 0; }))
    return std::vector<tables::PeakRow>{};
  auto peaks = FindPeaksOf(
      recording, Cells(recording), std::vector<TimeSpan>(recording.tables().devices.size()),
      [](const Cell&) { return true; }, &Cell::unbacked_of);
  if (!peaks.ok())
    return peaks.status();
  std::erase_if(peaks->highest, [](const tables::PeakRow& peak) { return peak.bytes == 0; });
  return std::move(peaks->highest);
}

util::Result<std::vector<tables::PeakRow>> FindPeaks(const tables::Recording& recording) {
  return FindPeaks(recording, std::vector<TimeSpan>(recording.tables().devices.size()));
}

util::Result<Peaks> FindBothPeaks(const tables::Recording& recording) {
  return FindPeaksOf(recording, Cells(recording),
                     std::vector<TimeSpan>(recording.tables().devices.size()),
                     [](const Cell&) { return true; });
}

void NoteAllocatedPeaks(const std::vector<tables::PeakRow>& peaks, tables::Tables* tables) {
  for (const tables::PeakRow& peak : peaks) {
    const std::string value =
        std::to_string(peak.bytes) + " bytes at @" + std::to_string(peak.time_ns);
    tables->notes.push_back(
        {tables->strings.Add(NoteKey(*tables, peak.device)), tables->strings.Add(value)});
  }
}

util::Result<std::vector<tables::PeakRow>> AllocatedPeaks(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  std::vector<tables::PeakRow> peaks;
  for (const tables::PeakRow& highest : tables.peaks) {
    // "1234 bytes at @5678".
    const std::string_view note = tables::NoteOf(recording, NoteKey(tables, highest.device));
    const size_t word = note.find(' ');
    const size_t at = note.rfind('@');
    if (word == std::string_view::npos || at == std::string_view::npos)
      break;
    const auto bytes = util::WholeNumber<uint64_t>(note.substr(0, word));
    const auto time_ns = util::WholeNumber<int64_t>(note.substr(at + 1));
    if (!bytes || !time_ns)
      break;
    peaks.push_back({highest.device, *time_ns, *bytes, 0});
  }
  if (peaks.size() == tables.peaks.size() && (!peaks.empty() || tables.accounts.size() <= 1))
    return peaks;
  auto found = FindPeaksOf(recording, Cells(recording), WholeSpans(tables),
                           [](const Cell&) { return true; });
  if (!found.ok())
    return found.status();
  return std::move(found->allocated);
}

util::Result<std::vector<tables::PeakRow>> FindOwnPeaks(const tables::Recording& recording,
                                                        const ReportQuery& query) {
  for (const ReportQuery::Where& where : query.where) {
    if (DimensionValues::IsOfRows(where.dimension)) {
      return util::Status::Error(std::string("--at own-peak does not go with --where ") +
                                 DimensionName(where.dimension) +
                                 ": use a dimension that does not change with time");
    }
  }
  const tables::Tables& tables = recording.tables();
  const DimensionValues texts(recording, query.own);
  util::Budget budget(tables.session.file_bytes, kTextBaseBytes, kTextBytesPerFileByte);
  Aggregator aggregator(recording, texts, query, &budget);
  const Cells cells(recording, [&](const tables::SiteRow& site) {
    Leaf leaf;
    const tables::AccountRow& of = RowOf(tables.accounts, site.account);
    leaf.device = of.device.value < tables.devices.size() ? of.device : tables::DeviceId{};
    leaf.process = of.process;
    leaf.site = site;
    return aggregator.Selects(leaf);
  });
  if (budget.IsOver())
    return budget.Refusal(tables.session.path);
  auto peaks = FindPeaksOf(recording, cells, WholeSpans(tables),
                           [](const Cell& cell) { return cell.group != 0; });
  if (!peaks.ok())
    return peaks.status();
  std::erase_if(peaks->highest, [](const tables::PeakRow& peak) { return peak.bytes == 0; });
  return std::move(peaks->highest);
}

util::Result<LargestAccount> FindLargestAccount(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto peaks, AllocatedPeaks(recording));
  VRAMSCOPE_ASSIGN_OR_RETURN(const LiveSet live, ReadLiveSet(recording, AtPeaks(tables, peaks)));
  const AllocatedRule rule(tables);
  std::vector<uint64_t> bytes(tables.accounts.size());
  ForEachLeaf(recording, live, [&](const Leaf& leaf) {
    if (leaf.process.value != 0 && rule.IsAllocated(leaf.site))
      bytes[leaf.site.account.value] += leaf.bytes;
  });
  const auto rank = [&](size_t account) {
    const auto kind = RowOf(tables.devices, tables.accounts[account].device).kind;
    const int order = kind == tables::DeviceKind::kGpu ? 2 : kind == tables::DeviceKind::kCpu;
    return std::pair(bytes[account] == 0 ? -1 : order, bytes[account]);
  };
  size_t best = 0;
  for (size_t i = 1; i < bytes.size(); ++i)
    best = rank(i) > rank(best) ? i : best;
  LargestAccount largest;
  largest.account.value = static_cast<uint32_t>(best);
  largest.bytes = bytes[best];
  for (size_t i = 1; i < bytes.size(); ++i)
    largest.processes += rank(i).first == rank(best).first ? 1u : 0u;
  return largest;
}

}  // namespace vramscope::query
