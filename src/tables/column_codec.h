// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tables/file_layout.h"

typedef struct ZSTD_CCtx_s ZSTD_CCtx;

namespace vramscope::tables {

// Makes blocks (file_layout.h), one after the other.
class BlockEncoder {
 public:
  explicit BlockEncoder(int zstd_level);

  void Begin(uint16_t table, uint32_t rows);
  // Signed values as their two's complement. At most kMaxBlockRows of them.
  void AddColumn(uint16_t number, std::span<const uint64_t> values);
  void AddText(uint16_t number, std::string_view text);
  // The block, valid until Begin(); `crc` is that of its header.
  std::span<const uint8_t> Finish(uint32_t* crc);

  // The zstd context could not be made, or zstd failed: memory ran out.
  bool failed() const { return failed_; }

 private:
  struct FreeContext {
    void operator()(ZSTD_CCtx* context) const;
  };

  bool TryDictionary(std::span<const uint64_t> values, ColumnHeader* header);
  void AddPlanes(std::span<const uint64_t> values, uint64_t base, unsigned width);
  void AddStream(std::span<const uint8_t> raw);
  void BeginPayload(size_t streams);
  void EndColumn(ColumnHeader header);

  std::unique_ptr<ZSTD_CCtx, FreeContext> context_;
  int level_;
  bool failed_ = false;
  BlockHeader header_{};
  std::vector<ColumnHeader> columns_;
  std::vector<uint8_t> payload_;  // of all columns so far
  size_t payload_begin_ = 0;      // of the column under way
  size_t stream_ = 0;             // number of its next stream
  std::vector<uint8_t> plane_;
  std::vector<uint8_t> stored_;
  std::vector<uint64_t> differences_;
  std::vector<uint64_t> entries_;
  std::vector<uint16_t> slots_;  // hash table: an entry's number + 1
  std::vector<uint16_t> indices_;
  std::vector<uint8_t> block_;
};

// The headers of a block, checked, and where each column's payload is.
class BlockHeaders {
 public:
  struct Column {
    ColumnHeader header;
    uint32_t offset = 0;  // of the payload, from the block's beginning
  };

  // `bytes` begin with the block and may end after its headers. False where they are damaged, or
  // are not those that `entry` names.
  [[nodiscard]] bool Parse(std::span<const uint8_t> bytes, const IndexEntry& entry);
  // The checksums of all columns; `block` is all of it.
  [[nodiscard]] bool PayloadsHold(std::span<const uint8_t> block) const;
  // nullptr: the block has no such column.
  const Column* Find(uint16_t number) const;
  const std::vector<Column>& columns() const { return columns_; }
  uint32_t header_bytes() const { return header_bytes_; }

 private:
  std::vector<Column> columns_;
  uint32_t header_bytes_ = 0;
};

// Unpacks a column into `out`, which has room for `header.values` values. False where it is damaged
// or a value does not fit.
template <class Value>
[[nodiscard]] bool DecodeColumn(const ColumnHeader& header,
                                std::span<const uint8_t> payload,
                                Value* out);
extern template bool DecodeColumn(const ColumnHeader&, std::span<const uint8_t>, uint64_t*);
extern template bool DecodeColumn(const ColumnHeader&, std::span<const uint8_t>, uint32_t*);
// The same of text, `header.values` bytes.
[[nodiscard]] bool DecodeText(const ColumnHeader& header,
                              std::span<const uint8_t> payload,
                              char* out);

}  // namespace vramscope::tables
