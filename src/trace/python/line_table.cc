// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "trace/python/lines.h"

namespace vramscope::trace {
namespace {

constexpr int64_t kNoLine = -1;

// Reads the varints of Objects/locations.md: six bits a byte, least significant first, bit 6 says
// "more". They stop at the end of the table.
class LocationReader {
 public:
  explicit LocationReader(std::span<const uint8_t> table) : table_(table) {}

  bool AtEnd() const { return at_ == table_.size(); }
  uint8_t Byte() { return AtEnd() ? 0 : table_[at_++]; }
  uint64_t Varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; !AtEnd(); shift += 6) {
      const uint8_t byte = table_[at_++];
      if (shift < 60)
        value |= static_cast<uint64_t>(byte & 0x3f) << shift;
      if ((byte & 0x40) == 0)
        break;
    }
    return value;
  }
  int64_t SignedVarint() {
    const uint64_t value = Varint();
    const auto magnitude = static_cast<int64_t>(value >> 1);
    return (value & 1) != 0 ? -magnitude : magnitude;
  }

 private:
  std::span<const uint8_t> table_;
  size_t at_ = 0;
};

}  // namespace

PythonLineTable::PythonLineTable(format::LineTableKind kind,
                                 uint32_t first_line,
                                 std::span<const uint8_t> table)
    : kind_(kind), first_line_(first_line) {
  switch (kind) {
    case format::LineTableKind::kLnotab:
      DecodeLnotab(table);
      break;
    case format::LineTableKind::kPep626:
      DecodePep626(table);
      break;
    case format::LineTableKind::kLocations:
      DecodeLocations(table);
      break;
    default:
      kind_ = format::LineTableKind::kNone;
  }
}

uint32_t PythonLineTable::LineAt(uint64_t byte_offset) const {
  if (kind_ == format::LineTableKind::kNone)
    return first_line_;
  const auto range =
      std::upper_bound(ranges_.begin(), ranges_.end(), byte_offset,
                       [](uint64_t offset, const Range& r) { return offset < r.end; });
  return range == ranges_.end() ? first_line_ : range->line;
}

void PythonLineTable::Append(uint64_t end, int64_t line) {
  const bool credible = line > 0 && line <= std::numeric_limits<int32_t>::max();
  const uint32_t value = credible ? static_cast<uint32_t>(line) : 0;
  const uint64_t begin = ranges_.empty() ? 0 : ranges_.back().end;
  if (end <= begin)
    return;
  if (!ranges_.empty() && ranges_.back().line == value) {
    ranges_.back().end = end;
  } else {
    ranges_.push_back({end, value});
  }
}

// Up to 3.9 (Objects/lnotab_notes.txt): pairs of bytes (bytecode increment, signed line increment).
// A line counts from its own pair's offset on.
void PythonLineTable::DecodeLnotab(std::span<const uint8_t> table) {
  uint64_t offset = 0;
  int64_t line = first_line_;
  for (size_t i = 0; i + 1 < table.size(); i += 2) {
    offset += table[i];
    Append(offset, line);
    line += static_cast<int8_t>(table[i + 1]);
  }
  Append(std::numeric_limits<uint64_t>::max(), line);
}

// 3.10 (PEP 626): pairs of bytes (bytes of bytecode, signed line increment); -128 says "no line".
// The increment counts from the pair's begin on.
void PythonLineTable::DecodePep626(std::span<const uint8_t> table) {
  uint64_t offset = 0;
  int64_t line = first_line_;
  for (size_t i = 0; i + 1 < table.size(); i += 2) {
    const auto increment = static_cast<int8_t>(table[i + 1]);
    if (increment != -128)
      line += increment;
    offset += table[i];
    Append(offset, increment == -128 ? kNoLine : line);
  }
}

// From 3.11 (Objects/locations.md): entries of a first byte 1CCCCLLL, C a code that says which
// columns follow, L the instruction's length in code units of 2 bytes, less one.
void PythonLineTable::DecodeLocations(std::span<const uint8_t> table) {
  LocationReader in(table);
  uint64_t offset = 0;
  int64_t line = first_line_;
  while (!in.AtEnd()) {
    const uint8_t first = in.Byte();
    if ((first & 0x80) == 0)
      return;  // not the start of an entry: damage
    const unsigned code = (first >> 3) & 15;
    offset += 2 * ((first & 7u) + 1);
    bool has_line = true;
    switch (code) {
      case 15:
        has_line = false;
        break;
      case 14:  // line, end line, column, end column
        line += in.SignedVarint();
        in.Varint();
        in.Varint();
        in.Varint();
        break;
      case 13:  // no columns
        line += in.SignedVarint();
        break;
      case 10:
      case 11:
      case 12:  // line 0 to 2 further on, both columns a byte
        line += code - 10;
        in.Byte();
        in.Byte();
        break;
      default:  // the same line, columns in one byte
        in.Byte();
    }
    // Sums stay small enough to add to without overflow; what is not credible counts as "no line".
    line = std::clamp<int64_t>(line, -1'000'000'000'000, 1'000'000'000'000);
    Append(offset, has_line ? line : kNoLine);
  }
}

}  // namespace vramscope::trace
