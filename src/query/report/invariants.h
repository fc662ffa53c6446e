// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "query/dimensions/report.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// What must hold of every recording, whatever the report asks: fills report->invariants.
// `peak_sums` are those of the report's rows, where it is of the peaks: by device, of all rows.
using DeviceSums = std::vector<std::pair<tables::DeviceId, uint64_t>>;
util::Status CheckInvariants(const tables::Recording& recording,
                             const DeviceSums& peak_sums,
                             Report* report);

}  // namespace vramscope::query
