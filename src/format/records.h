// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/enums.h"

// One plain struct a record, made of records.def. Each has its type and a Visit function that names
// its fields in file order: encoder, decoder and dump are visitors.
namespace vramscope::format {

// Bytes with another owner: the caller when encoding, the mapped chunk when decoding.
struct Bytes {
  const char* data = nullptr;
  size_t size = 0;
};

#define VRAMSCOPE_RECORD(Name, id, doc) \
  struct Name {                         \
    static constexpr uint8_t kType = id;
#define VRAMSCOPE_TIME(field) uint64_t field = 0;
#define VRAMSCOPE_ADDRESS(field) uint64_t field = 0;
#define VRAMSCOPE_UINT(field) uint64_t field = 0;
#define VRAMSCOPE_SINT(field) int64_t field = 0;
#define VRAMSCOPE_BYTES(field) Bytes field{};
#define VRAMSCOPE_END \
  }                   \
  ;
#include "format/records.def"

#define VRAMSCOPE_RECORD(Name, id, doc)                                                          \
  template <class Visitor, class Record>                                                         \
  requires(Record::kType == id) [[gnu::always_inline]] inline void VisitFields(Visitor& visitor, \
                                                                               Record& record) {
#define VRAMSCOPE_TIME(field) visitor.Time(#field, record.field);
#define VRAMSCOPE_ADDRESS(field) visitor.Address(#field, record.field);
#define VRAMSCOPE_UINT(field) visitor.Uint(#field, record.field);
#define VRAMSCOPE_SINT(field) visitor.Sint(#field, record.field);
#define VRAMSCOPE_BYTES(field) visitor.Blob(#field, record.field);
// Only writers need this: a reader sees where a record ends.
#define VRAMSCOPE_TAIL(field)                                   \
  if constexpr (requires { Visitor::HasTail(record.field); }) { \
    if (!Visitor::HasTail(record.field))                        \
      return;                                                   \
  }
#define VRAMSCOPE_END }
#include "format/records.def"

// The record's name, or nullptr for a type that this version does not know.
const char* RecordName(uint8_t type);

}  // namespace vramscope::format
