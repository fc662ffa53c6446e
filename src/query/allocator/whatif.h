// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "query/results.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

struct WhatIfOptions {
  std::vector<std::string> settings;  // beside the usual ones
  std::optional<uint64_t> card_bytes;
  // No other process and device. It is replayed once, without a search for streams.
  std::optional<tables::AccountId> only;
};

// An error where no process used PyTorch's allocator, or its beginning was not recorded.
util::Result<WhatIf> MakeWhatIf(const tables::Recording& recording, const WhatIfOptions& options);

}  // namespace vramscope::query
