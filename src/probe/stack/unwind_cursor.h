// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "base/compiler.h"

namespace vramscope::probe {

struct ByteRange {
  const uint8_t* begin = nullptr;
  const uint8_t* end = nullptr;

  bool Contains(const uint8_t* at) const { return at >= begin && at < end; }
};

// How a pointer is written in .eh_frame and .eh_frame_hdr (DW_EH_PE_*).
inline constexpr uint8_t kPointerOmitted = 0xff;
inline constexpr uint8_t kPointerTableOfInt32 = 0x3b;  // datarel, sdata4

// Reads a range of bytes from its beginning on. What would be past the end reads as zero, and the
// cursor is not ok() from there on.
class ByteCursor {
 public:
  explicit ByteCursor(ByteRange range) : at_(range.begin), end_(range.end) {}

  bool ok() const { return ok_; }
  bool AtEnd() const { return at_ >= end_; }
  const uint8_t* at() const { return at_; }
  size_t left() const { return static_cast<size_t>(end_ - at_); }
  bool Fail() { return ok_ = false; }

  template <class T>
  T Fixed() {
    T value{};
    if (!Has(sizeof value))
      return value;
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  uint8_t U8() { return Fixed<uint8_t>(); }

  uint64_t Uleb() {
    uint64_t value = 0;
    uint8_t byte = 0;
    unsigned shift = 0;
    do {
      byte = U8();
      if (shift < 64)
        value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      shift += 7;
    } while ((byte & 0x80) != 0);
    return value;
  }

  int64_t Sleb() {
    uint64_t value = 0;
    uint8_t byte = 0;
    unsigned shift = 0;
    do {
      byte = U8();
      if (shift < 64)
        value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      shift += 7;
    } while ((byte & 0x80) != 0);
    if ((byte & 0x40) != 0 && shift < 64)
      value |= ~uint64_t{0} << shift;
    return static_cast<int64_t>(value);
  }

  // A pointer as `encoding` says; `data_base` is what datarel ones count from. Indirect ones and
  // those that count from text or functions are not in use on Linux, and fail.
  uint64_t Pointer(uint8_t encoding, const uint8_t* data_base) {
    const auto here = reinterpret_cast<uintptr_t>(at_);
    uint64_t value = 0;
    switch (encoding & 0x0f) {
      case 0x00:
      case 0x04:
      case 0x0c:
        value = Fixed<uint64_t>();
        break;
      case 0x01:
        value = Uleb();
        break;
      case 0x02:
        value = Fixed<uint16_t>();
        break;
      case 0x03:
        value = Fixed<uint32_t>();
        break;
      case 0x09:
        value = static_cast<uint64_t>(Sleb());
        break;
      case 0x0a:
        value = static_cast<uint64_t>(int64_t{Fixed<int16_t>()});
        break;
      case 0x0b:
        value = static_cast<uint64_t>(int64_t{Fixed<int32_t>()});
        break;
      default:
        Fail();
    }
    switch (encoding & 0xf0) {
      case 0x00:
        return value;
      case 0x10:
        return value + here;
      case 0x30:
        return value + reinterpret_cast<uintptr_t>(data_base);
      default:
        Fail();
        return 0;
    }
  }

  // The next `size` bytes, which the cursor passes over.
  ByteRange Take(uint64_t size) {
    if (!Has(size))
      return {};
    const ByteRange taken{at_, at_ + size};
    at_ += size;
    return taken;
  }

 private:
  bool Has(uint64_t size) {
    if (VRAMSCOPE_UNLIKELY(size > left())) {
      at_ = end_;
      return Fail();
    }
    return true;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  bool ok_ = true;
};

}  // namespace vramscope::probe
