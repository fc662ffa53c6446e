// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "query/dimensions/iteration_times.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"
#include "util/status.h"

// Instants in the words of `--at`, on a recording.
namespace vramscope::query {

inline constexpr int64_t kNoTime = INT64_MIN;

// When rows count: an instant may be another one for each account. kNoTime: nothing of it counts.
struct Instants {
  std::vector<int64_t> of_account;  // by AccountId

  // Those of the processes that use the device; where there are none, of who else does.
  std::vector<int64_t> OfDevice(const tables::Tables& tables, tables::DeviceId device) const;
};
Instants AllAt(const tables::Tables& tables, int64_t time_ns);
// Each account at its device's own instant.
Instants AtPeaks(const tables::Tables& tables, const std::vector<tables::PeakRow>& peaks);
// Without accounts that are checkpointed then: they have nothing on their devices.
Instants WithoutCheckpointed(const tables::Tables& tables, Instants instants);

// The instant of a query, whose conditions say what `own-peak` is of. An error says what the
// recording has.
util::Result<Instants> ResolveInstant(const tables::Recording& recording, const ReportQuery& query);
util::Result<Instants> ResolveInstant(const tables::Recording& recording, const Instant& instant);

// "peak", "allocated-peak", "own-peak", "end", "time", "iteration" or "mark".
const char* InstantKindName(Instant::Kind kind);

// The iteration that an instant is in for those who use the device; nothing where they have none,
// or not the same.
std::optional<int64_t> IterationAt(const tables::Tables& tables,
                                   const IterationTimes& iterations,
                                   tables::DeviceId device,
                                   int64_t time_ns);

}  // namespace vramscope::query
