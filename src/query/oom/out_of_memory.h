// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "query/results.h"
#include "tables/recording.h"
#include "util/status.h"

// Why a request for device memory was refused: who held the device then, and what would help.
namespace vramscope::query {

// There in any program: no cause, unless it is most of the device.
inline constexpr char kHeldByDriver[] = "context, code and other memory of the driver";

util::Result<OutOfMemory> ExplainRefusal(const tables::Recording& recording,
                                         const Refusal& refusal);

}  // namespace vramscope::query
