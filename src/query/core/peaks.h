// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <vector>

#include "query/core/change_stream.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// Which of two instants is the peak: that of the larger total; among equal totals, that of more
// bytes in use; of equal ones, the first.
struct Height {
  int64_t total = 0;
  int64_t used = 0;
  friend auto operator<=>(const Height&, const Height&) = default;
};

// The table `peaks`: the highest instant of each device that ever had memory. Resolve fills the
// table once, before it writes the recording.
util::Result<std::vector<tables::PeakRow>> FindPeaks(const tables::Recording& recording);

// The same within a span of each device, by DeviceId; where there is nothing, its first instant.
util::Result<std::vector<tables::PeakRow>> FindPeaks(const tables::Recording& recording,
                                                     const std::vector<TimeSpan>& spans);

// Both tables of one pass: of all, and of what is allocated (AllocatedRule).
struct Peaks {
  std::vector<tables::PeakRow> highest;
  std::vector<tables::PeakRow> allocated;
};
util::Result<Peaks> FindBothPeaks(const tables::Recording& recording);
// A file has the latter as notes, one a device.
inline constexpr char kAllocatedPeakNote[] = "allocated peak of ";
void NoteAllocatedPeaks(const std::vector<tables::PeakRow>& peaks, tables::Tables* tables);
// Of a recording without such notes they are looked for.
util::Result<std::vector<tables::PeakRow>> AllocatedPeaks(const tables::Recording& recording);

// The process and device with most allocated bytes, each at its device's allocated peak. GPUs come
// before CPU tensors, and those before pinned memory.
struct LargestAccount {
  tables::AccountId account;
  uint64_t bytes = 0;      // 0: no process allocated anything
  uint64_t processes = 0;  // that have memory of this kind
};
util::Result<LargestAccount> FindLargestAccount(const tables::Recording& recording);

// The highest instants of what the conditions of a query select, of the devices that have any. Of a
// ring's recording within its history. An error where a condition is about single allocations.
util::Result<std::vector<tables::PeakRow>> FindOwnPeaks(const tables::Recording& recording,
                                                        const ReportQuery& query);
// The same of what has no device memory below it, on the devices of its allocators; none where
// nothing ever was like that.
util::Result<std::vector<tables::PeakRow>> FindUnbackedPeaks(const tables::Recording& recording);

// The same without the allocations of some sites.
util::Result<std::vector<tables::PeakRow>> FindPeaksWithout(
    const tables::Recording& recording,
    const std::function<bool(const tables::SiteRow& site)>& leaves_out);

// The same of what some processes have, whatever others have beside them.
util::Result<std::vector<tables::PeakRow>> FindPeaks(
    const tables::Recording& recording,
    const std::vector<TimeSpan>& spans,
    const std::function<bool(tables::ProcessId)>& counts);

}  // namespace vramscope::query
