// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "format/memory_words.h"
#include "tables/recording.h"
#include "util/status.h"

// The figures that a monitoring system follows, of the last instant of a recording.
namespace vramscope::query {

struct CategoryMetrics {
  format::Category category = format::Category::kUnknown;
  uint64_t live_bytes = 0;
  uint64_t peak_bytes = 0;  // its own highest, whenever that was
  // Bytes an iteration. None: there are too few iterations to judge.
  std::optional<double> growth;
};

// A recorded process on a device.
struct AccountMetrics {
  tables::ProcessId process;
  tables::DeviceId device;
  std::vector<CategoryMetrics> categories;  // those that ever had bytes
  uint64_t peak_bytes = 0;
  uint64_t reserved_bytes = 0;
  // None in a recording of samples.
  std::optional<uint64_t> failures;
  // Nor in a ring, which forgets old allocations: a counter must not decrease.
  std::optional<uint64_t> allocations;
  std::optional<uint64_t> allocated_bytes;
};

struct Metrics {
  std::vector<AccountMetrics> accounts;
  std::map<tables::DeviceId, int64_t> residual_bytes;  // at the last sample of the device
  std::map<tables::ProcessId, uint64_t> iterations;    // of processes that have any
};

util::Result<Metrics> MakeMetrics(const tables::Recording& recording);

}  // namespace vramscope::query
