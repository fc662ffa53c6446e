// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace vramscope::probe {

// Whether this is XLA's error for exhausted memory. How much was asked for, as exactly as it says
// so; 0 if it does not.
bool IsXlaRefusal(const char* text, size_t size_bytes, uint64_t* requested_bytes);

}  // namespace vramscope::probe
