// SPDX-License-Identifier: Apache-2.0

#include "base/coding.h"

#include <array>
#include <cstring>

namespace vramscope::base {
namespace {

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0);
    table[i] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t HardwareCrc(const uint8_t* data,
                                                       size_t size,
                                                       uint32_t crc) {
  uint64_t wide = crc;
  // Four words a turn: the turns would cost as much as the sums.
  uint64_t words[4];
  for (; size >= sizeof words; size -= sizeof words, data += sizeof words) {
    std::memcpy(words, data, sizeof words);
    wide = __builtin_ia32_crc32di(wide, words[0]);
    wide = __builtin_ia32_crc32di(wide, words[1]);
    wide = __builtin_ia32_crc32di(wide, words[2]);
    wide = __builtin_ia32_crc32di(wide, words[3]);
  }
  for (; size >= sizeof words[0]; size -= sizeof words[0], data += sizeof words[0]) {
    std::memcpy(words, data, sizeof words[0]);
    wide = __builtin_ia32_crc32di(wide, words[0]);
  }
  crc = static_cast<uint32_t>(wide);
  for (; size != 0; --size, ++data)
    crc = __builtin_ia32_crc32qi(crc, *data);
  return crc;
}
#endif

}  // namespace

uint32_t Crc32c(const void* data, size_t size_bytes, uint32_t crc) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  crc = ~crc;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("sse4.2"))
    return ~HardwareCrc(bytes, size_bytes, crc);
#endif
  for (size_t i = 0; i < size_bytes; ++i)
    crc = kTable[(crc ^ bytes[i]) & 0xff] ^ (crc >> 8);
  return ~crc;
}

}  // namespace vramscope::base
