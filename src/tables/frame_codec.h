// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tables/column_codec.h"
#include "tables/recording.h"

// Frames of `allocations` as blocks, and back. Their columns are not those of tables.def one by
// one: what allocations have in common is where the bytes are saved.
namespace vramscope::tables {

// Makes frames out of rows.
class FrameEncoder {
 public:
  explicit FrameEncoder(int zstd_level) : encoder_(zstd_level) {}

  // At most kMaxBlockRows rows, which are put in order. The block is valid until the next call.
  // What `entry` says of a block is filled in, but for its place and `accounts`.
  std::span<const uint8_t> Encode(std::span<AllocationRow> rows, IndexEntry* entry);
  bool failed() const { return encoder_.failed(); }

 private:
  BlockEncoder encoder_;
  std::vector<uint64_t> words_;
};

// The columns `wanted` of a frame; `block` is all of it, or as much of it as holds them (its other
// bytes are not looked at). False where it is damaged.
[[nodiscard]] bool DecodeFrame(const BlockHeaders& headers,
                               std::span<const uint8_t> block,
                               uint32_t rows,
                               uint32_t wanted,
                               AllocationFrame* out);

}  // namespace vramscope::tables
