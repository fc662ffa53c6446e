// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include "base/coding.h"
#include "base/compiler.h"
#include "format/layout.h"
#include "format/records.h"

namespace vramscope::format {

// Delta state of one chunk; both sides keep it.
struct DeltaState {
  uint64_t time = 0;
  uint64_t address = 0;
};

namespace internal {

// Upper bound of a record's encoded size, header included.
struct BoundVisitor {
  size_t bytes = 6;
  void Time(const char*, uint64_t) { bytes += base::kMaxVarintBytes; }
  void Address(const char*, uint64_t) { bytes += base::kMaxVarintBytes; }
  void Uint(const char*, uint64_t) { bytes += base::kMaxVarintBytes; }
  void Sint(const char*, int64_t) { bytes += base::kMaxVarintBytes; }
  void Blob(const char*, const Bytes& blob) { bytes += base::kMaxVarintBytes + blob.size; }
};

struct EncodeVisitor {
  uint8_t* out;
  DeltaState* delta;
  void Time(const char*, uint64_t value) {
    out = base::PutVarint(out, base::ZigZag(static_cast<int64_t>(value - delta->time)));
    delta->time = value;
  }
  void Address(const char*, uint64_t value) {
    out = base::PutVarint(out, base::ZigZag(static_cast<int64_t>(value - delta->address)));
    delta->address = value;
  }
  void Uint(const char*, uint64_t value) { out = base::PutVarint(out, value); }
  void Sint(const char*, int64_t value) { out = base::PutVarint(out, base::ZigZag(value)); }
  void Blob(const char*, const Bytes& blob) {
    out = base::PutVarint(out, blob.size);
    if (blob.size != 0)
      std::memcpy(out, blob.data, blob.size);
    out += blob.size;
  }
  static bool HasTail(uint64_t value) { return value != 0; }
};

}  // namespace internal

// An upper bound of the bytes that Encode() writes. Constant for records without blobs.
template <class Record>
inline size_t EncodedBound(const Record& record) {
  internal::BoundVisitor bound;
  VisitFields(bound, record);
  return bound.bytes;
}

// Writes `record` at `out`, where EncodedBound(record) bytes are free; returns the byte after it.
// Safe in the target: no allocation, no failure.
template <class Record>
VRAMSCOPE_ALWAYS_INLINE uint8_t* Encode(const Record& record, uint8_t* out, DeltaState* delta) {
  *out++ = Record::kType;
  const bool is_long = EncodedBound(record) > 254;
  uint8_t* const length = out;
  out += is_long ? 5 : 1;
  internal::EncodeVisitor visitor{out, delta};
  VisitFields(visitor, record);
  const auto payload = static_cast<uint32_t>(visitor.out - out);
  if (is_long) {
    *length = 0xff;
    std::memcpy(length + 1, &payload, sizeof payload);
  } else {
    *length = static_cast<uint8_t>(payload);
  }
  return visitor.out;
}

}  // namespace vramscope::format
