// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace vramscope::base {

// CRC-32C (Castagnoli, RFC 3720), with the SSE4.2 instruction where the processor has it.
uint32_t Crc32c(const void* data, size_t size_bytes, uint32_t crc = 0);

}  // namespace vramscope::base
