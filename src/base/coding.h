// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

// LEB128, as in protobuf: seven bits a byte, least significant first, the top bit says "more".
// Signed values are zigzag-mapped first, so that small negative deltas stay small.
namespace vramscope::base {

inline constexpr size_t kMaxVarintBytes = 10;

constexpr uint64_t ZigZag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}

constexpr int64_t UnZigZag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

// Writes at most kMaxVarintBytes at `out` and returns the first byte after them.
inline uint8_t* PutVarint(uint8_t* out, uint64_t value) {
  while (value >= 0x80) {
    *out++ = static_cast<uint8_t>(value) | 0x80;
    value >>= 7;
  }
  *out++ = static_cast<uint8_t>(value);
  return out;
}

// Reads one varint from [in, end). Returns the first byte after it, or nullptr when the bytes end
// too early or encode more than 64 bits.
inline const uint8_t* GetVarint(const uint8_t* in, const uint8_t* end, uint64_t* value) {
  uint64_t result = 0;
  for (unsigned shift = 0; shift < 64 && in < end; shift += 7) {
    const uint8_t byte = *in++;
    const uint64_t bits = byte & 0x7f;
    if (shift == 63 && bits > 1)
      return nullptr;
    result |= bits << shift;
    if ((byte & 0x80) == 0) {
      *value = result;
      return in;
    }
  }
  return nullptr;
}

// The same for callers that read many: it may look at bytes after `end`, up to `readable`, and so
// takes eight at once.
[[gnu::always_inline]] inline const uint8_t* GetVarint(const uint8_t* in,
                                                       const uint8_t* end,
                                                       const uint8_t* readable,
                                                       uint64_t* value) {
  if (in < end && *in < 0x80) {
    *value = *in;
    return in + 1;
  }
  if (readable - in < 8)
    return GetVarint(in, end, value);
  uint64_t word = 0;
  std::memcpy(&word, in, sizeof word);
  const uint64_t last = ~word & 0x8080808080808080;  // the lowest bit of it ends the number
  if (last == 0)
    return GetVarint(in, end, value);
  in += (std::countr_zero(last) + 1) / 8;
  // Seven bits a byte become 14 of 16, 28 of 32, 56 of 64.
  word &= (last ^ (last - 1)) & 0x7f7f7f7f7f7f7f7f;
  word = (word & 0x007f007f007f007f) | (word & 0x7f007f007f007f00) >> 1;
  word = (word & 0x00003fff00003fff) | (word & 0x3fff00003fff0000) >> 2;
  *value = (word & 0x000000000fffffff) | (word & 0x0fffffff00000000) >> 4;
  return in <= end ? in : nullptr;
}

// CRC-32C (Castagnoli, RFC 3720). Uses the SSE4.2 instruction if the processor supports it.
uint32_t Crc32c(const void* data, size_t size_bytes, uint32_t crc = 0);

}  // namespace vramscope::base
