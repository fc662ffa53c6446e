// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/replay/state.h"

namespace vramscope::engine {

// One sample against the ledger: what is left unexplained, and whether only the calls under way
// explain the rest.
struct SampleVerdict {
  int64_t residual = 0;
  int64_t in_transit = 0;  // used - ledger, where it lies within what the calls under way allow
  bool explained_by_transit = false;
};
SampleVerdict JudgeSample(const DeviceSampleRecord& sample);

struct ResidualStatistics {
  uint64_t samples = 0;
  uint64_t samples_in_transit = 0;
  int64_t worst_bytes = 0;
  int64_t worst_at_ns = 0;
  uint64_t p99_bytes = 0;
};
// Over all samples taken while a recorded process used the device.
ResidualStatistics SummarizeResidual(const DeviceState& device);

// The sample that shows the device as the ledger stood at version `version` with `total` bytes
// around `time_ns`: the nearest in time without a movement in between, one without calls under way
// before others; else the nearest one at which the ledger had the same total. Null where there is
// none.
const DeviceSampleRecord* SampleAt(const DeviceState& device,
                                   uint64_t version,
                                   int64_t total,
                                   int64_t time_ns);
const ProcessSampleRecord* ProcessSampleAt(const Space& space,
                                           uint64_t version,
                                           uint64_t total,
                                           int64_t time_ns);

}  // namespace vramscope::engine
