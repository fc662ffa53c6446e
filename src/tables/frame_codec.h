// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tables/column_codec.h"
#include "tables/recording.h"

// Frames of `allocations` as blocks, and back. A repetitive program makes allocations that differ
// only in times and addresses. The other columns (bytes, rounding, site, segment) are a row of the
// frame's *shapes*, and the allocation has the number of that row.
namespace vramscope::tables {

// Columns of a frame. Rows are in order of their end.
enum FrameColumn : uint16_t {
  kFrameBegin = 1,
  kFrameEnd = 2,
  kFrameBeginLessAlloc = 3,  // begin_ns - alloc_ns
  kFrameAddress = 4,
  kFrameShape = 5,
  // One value a shape, by first appearance.
  kShapeBytes = 6,
  kShapeRounding = 7,
  kShapeSite = 8,
  kShapeSegment = 9,
};

// Makes frames out of rows.
class FrameEncoder {
 public:
  explicit FrameEncoder(int zstd_level);

  // At most kMaxBlockRows rows, which are put in order. The block is valid until the next call.
  // `entry` is filled in, except for its place and `accounts`.
  std::span<const uint8_t> Encode(std::span<AllocationRow> rows, IndexEntry* entry);
  // Of the frame just made, distinct.
  std::vector<uint32_t> TakeSites();
  bool failed() const { return encoder_.failed(); }

 private:
  struct Shape {
    uint64_t bytes, rounding_bytes;
    uint32_t site, segment;
    friend bool operator==(const Shape&, const Shape&) = default;
  };
  // Twice as many as a frame can have shapes.
  static constexpr unsigned kSlotBits = 17;

  uint32_t NumberOf(const Shape& shape);
  template <class Value>
  void AddShapeColumn(FrameColumn number, const Value& value);

  BlockEncoder encoder_;
  std::array<std::vector<uint64_t>, 5> columns_;
  std::vector<Shape> shapes_;
  std::vector<uint32_t> slots_;  // hash table: a shape's number + 1
};

// The columns `wanted` of the frame `block`. False where they are damaged.
[[nodiscard]] bool DecodeFrame(const BlockHeaders& headers,
                               std::span<const uint8_t> block,
                               uint32_t rows,
                               uint32_t wanted,
                               AllocationFrame* out);

}  // namespace vramscope::tables
