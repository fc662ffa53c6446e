// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "query/results.h"
#include "tables/recording.h"

namespace vramscope::query {

XlaPool FindXlaPool(const tables::Recording& recording, const Refusal& refusal);

// Why a request was refused by such a pool, as a sentence.
std::string CauseInXlaPool(const XlaPool& pool, uint64_t requested_bytes);

}  // namespace vramscope::query
