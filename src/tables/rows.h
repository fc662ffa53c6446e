// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

#include "format/memory_words.h"
#include "tables/ids.h"

// The rows of tables.def as structs, and their columns as constants.
namespace vramscope::tables {

inline constexpr int64_t kNever = INT64_MAX;

enum class DeviceKind : uint8_t { kGpu = 0, kHost = 1, kCpu = 2 };
enum class FrameKind : uint8_t { kPython = 0, kNative = 1 };
enum class IterationsBy : uint8_t { kSteps = 0, kMarks = 1, kProfiler = 2, kProgram = 3 };
enum class Estimated : uint8_t { kExact = 0, kByFreeMemory = 1, kCorrected = 2 };
enum class InvariantKind : uint8_t { kFreedTwice = 0, kOutsideSegment = 1, kOverfullSegment = 2 };

#define VRAMSCOPE_TABLE(number, Row, name, text) struct Row {
#define VRAMSCOPE_COLUMN(number, Row, Type, field, unit, text) Type field{};
#define VRAMSCOPE_TABLE_END(Row)                             \
  friend auto operator<=>(const Row&, const Row&) = default; \
  }                                                          \
  ;
#include "tables/tables.def"

// A column's value as a number.
template <class T>
constexpr uint64_t ToWord(T value) {
  if constexpr (kIsId<T>)
    return value.value;
  else
    return static_cast<uint64_t>(value);
}

template <class Row, class Type>
struct Column {
  uint32_t number;
  const char* name;
  Type Row::*field;
  const char* unit;  // "bytes", "ns", the name of the table that it points into, or ""
  const char* text;
};

// TableOf<Row>::kNumber, kName, kText and VisitColumns(), which calls visit(Column<Row, Type>) for
// each in their order. A tuple of them would say the same, and make every file that knows a row a
// second slower to compile.
template <class Row>
struct TableOf;

#define VRAMSCOPE_TABLE(number, Row, name, text)  \
  template <>                                     \
  struct TableOf<Row> {                           \
    static constexpr uint32_t kNumber = (number); \
    static constexpr const char* kName = name;    \
    static constexpr const char* kText = text;    \
    template <class Visitor>                      \
    static constexpr void VisitColumns(Visitor&& visit) {
#define VRAMSCOPE_COLUMN(number, Row, Type, field, unit, text) \
  visit(Column<Row, Type>{(number), #field, &Row::field, unit, text});
#define VRAMSCOPE_TABLE_END(Row) \
  }                              \
  }                              \
  ;
#include "tables/tables.def"

}  // namespace vramscope::tables
