// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include "trace/trace.h"
#include "util/owned_file.h"

namespace vramscope::trace {

// What a recording may take the place of: another, or an empty file.
inline constexpr util::Content kFinishedContent = {
    "a vramscope trace", [](std::span<const uint8_t> start, uint64_t size_bytes) {
      return size_bytes == 0 ||
             (start.size() >= sizeof kFinishedMagic &&
              std::memcmp(start.data(), kFinishedMagic, sizeof kFinishedMagic) == 0);
    }};

}  // namespace vramscope::trace
