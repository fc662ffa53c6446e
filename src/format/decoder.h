// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>

#include "base/coding.h"
#include "format/encoder.h"
#include "format/records.h"

namespace vramscope::format {

// One record as it is stored in a chunk.
struct RawRecord {
  uint8_t type = 0;
  const uint8_t* payload = nullptr;
  size_t payload_bytes = 0;
  const uint8_t* readable_end = nullptr;  // of the chunk: what is behind the payload can be read
};

// Takes the next record off [*cursor, end) and moves the cursor past it. False when the rest is not
// a whole record: nothing after it in this chunk can be trusted.
[[nodiscard]] inline bool NextRecord(const uint8_t** cursor,
                                     const uint8_t* end,
                                     RawRecord* record) {
  const uint8_t* in = *cursor;
  if (end - in < 2)
    return false;
  record->type = *in++;
  uint32_t payload = *in++;
  if (payload == 0xff) {
    if (end - in < 4)
      return false;
    std::memcpy(&payload, in, sizeof payload);
    in += 4;
  }
  if (record->type == 0 || static_cast<size_t>(end - in) < payload)
    return false;
  record->payload = in;
  record->payload_bytes = payload;
  record->readable_end = end;
  *cursor = in + payload;
  return true;
}

namespace internal {

// Everything that is read goes through here, a hundred million records and more: inlined, so that
// the branches of each field are predicted by themselves.
struct DecodeVisitor {
  const uint8_t* in;
  const uint8_t* end;
  const uint8_t* readable_end;
  DeltaState* delta;
  bool ok = true;

  // A varint of kBytes bytes, unless its last byte says that more follow.
  template <size_t kBytes>
  [[gnu::always_inline]] bool GetOf(uint64_t* value) {
    if (static_cast<size_t>(end - in) < kBytes || in[kBytes - 1] >= 0x80)
      return false;
    *value = [this]<size_t... kAt>(std::index_sequence<kAt...>) {
      return (((uint64_t{in[kAt]} & 0x7f) << (7 * kAt)) | ...);
    }
    (std::make_index_sequence<kBytes>());
    in += kBytes;
    return true;
  }
  // A field that an older writer did not have is absent at the end of the payload: its default
  // stays. Half a field is damage, and nothing after it is read.
  [[gnu::always_inline]] bool Get(uint64_t* value) {
    if (in == end)
      return false;
    // As nearly all are.
    if (GetOf<1>(value) || GetOf<2>(value) || GetOf<3>(value) || GetOf<4>(value))
      return true;
    in = base::GetVarint(in, end, readable_end, value);
    if (in != nullptr) [[likely]]
      return true;
    ok = false;
    in = end;
    return false;
  }
  [[gnu::always_inline]] void Time(const char*, uint64_t& value) {
    uint64_t raw;
    if (Get(&raw))
      value = delta->time += static_cast<uint64_t>(base::UnZigZag(raw));
  }
  [[gnu::always_inline]] void Address(const char*, uint64_t& value) {
    uint64_t raw;
    if (Get(&raw))
      value = delta->address += static_cast<uint64_t>(base::UnZigZag(raw));
  }
  [[gnu::always_inline]] void Uint(const char*, uint64_t& value) {
    uint64_t raw;
    if (Get(&raw))
      value = raw;
  }
  [[gnu::always_inline]] void Sint(const char*, int64_t& value) {
    uint64_t raw;
    if (Get(&raw))
      value = base::UnZigZag(raw);
  }
  void Blob(const char*, Bytes& value) {
    uint64_t size;
    if (!Get(&size))
      return;
    if (size > static_cast<uint64_t>(end - in)) {
      ok = false;
      in = end;
      return;
    }
    value = {reinterpret_cast<const char*>(in), static_cast<size_t>(size)};
    in += size;
  }
};

}  // namespace internal

// Decodes a payload of type Record::kType. Fields that the writer did not know keep their defaults,
// fields that this reader does not know are ignored, unless it `knows_all`: then what is left over
// is damage. False when the payload is damaged.
template <class Record>
[[nodiscard]] inline bool Decode(const RawRecord& raw,
                                 DeltaState* delta,
                                 Record* record,
                                 bool knows_all = false) {
  internal::DecodeVisitor visitor{raw.payload, raw.payload + raw.payload_bytes, raw.readable_end,
                                  delta};
  VisitFields(visitor, *record);
  return visitor.ok && (!knows_all || visitor.in == visitor.end);
}

}  // namespace vramscope::format
