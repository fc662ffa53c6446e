// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/varint.h"

// A frame's content before compression: a few columns, each a run of varints (or plain bytes).
//
//   varint: number of columns | per column: varint id, varint size in bytes | column | column | ...
//
// A column that a reader does not know is skipped, one that a writer did not have reads as zeros.
namespace vramscope::trace::finished {

inline constexpr size_t kMaxColumns = 32;

class ColumnWriter {
 public:
  void Put(uint64_t value) {
    if (bytes_.size() + base::kMaxVarintBytes > bytes_.capacity())
      bytes_.reserve(Grown());
    uint8_t varint[base::kMaxVarintBytes];
    const uint8_t* end = base::PutVarint(varint, value);
    bytes_.insert(bytes_.end(), varint, varint + (end - varint));
  }
  void PutSigned(int64_t value) { Put(base::ZigZag(value)); }
  void PutText(std::string_view text) { bytes_.insert(bytes_.end(), text.begin(), text.end()); }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  void Clear() { bytes_.clear(); }

 private:
  size_t Grown() const { return bytes_.capacity() < 512 ? 1024 : bytes_.capacity() * 2; }
  std::vector<uint8_t> bytes_;
};

// Reads a column. Errors stick: after the end of the bytes every value is 0 and ok() false.
class ColumnReader {
 public:
  ColumnReader() = default;
  explicit ColumnReader(std::span<const uint8_t> bytes)
      : in_(bytes.data()), end_(bytes.data() + bytes.size()), present_(true) {}

  uint64_t Next() {
    if (in_ != end_ && *in_ < 0x80)
      return *in_++;
    return NextLong();
  }
  int64_t NextSigned() { return base::UnZigZag(Next()); }
  std::string_view NextText(size_t size);
  bool ok() const { return ok_; }
  size_t BytesLeft() const { return static_cast<size_t>(end_ - in_); }
  // Bytes of `all`, which this reader was made of, that were read.
  size_t Consumed(std::span<const uint8_t> all) const {
    return static_cast<size_t>(in_ - all.data());
  }

 private:
  uint64_t NextLong();

  const uint8_t* in_ = nullptr;
  const uint8_t* end_ = nullptr;
  bool present_ = false;
  bool ok_ = true;
};

class ColumnSetWriter {
 public:
  ColumnWriter& operator[](size_t id) { return columns_[id]; }
  // The frame's content; the columns are empty afterwards.
  void TakeBytes(std::vector<uint8_t>* out);
  size_t size_bytes() const;

 private:
  std::array<ColumnWriter, kMaxColumns> columns_;
};

class ColumnSetReader {
 public:
  // False when the bytes are not a set of columns. They must outlive the reader.
  [[nodiscard]] bool Parse(std::span<const uint8_t> bytes);
  // A reader of the column's values from the start; of zeros where there is no such column.
  ColumnReader Column(size_t id) const { return columns_[id]; }

 private:
  std::array<ColumnReader, kMaxColumns> columns_;
};

}  // namespace vramscope::trace::finished
