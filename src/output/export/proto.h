// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Writes protobuf messages: https://protobuf.dev/programming-guides/encoding. Fields that have
// their default value are left out, as proto3 does.
namespace vramscope::output {

class ProtoMessage {
 public:
  void Number(uint32_t field, uint64_t value) {
    if (value != 0)
      NumberOrZero(field, value);
  }
  // Where it matters that it is there: members of a oneof.
  void NumberOrZero(uint32_t field, uint64_t value) {
    Varint(uint64_t{field} << 3);
    Varint(value);
  }
  // Strings and messages.
  void Bytes(uint32_t field, std::string_view value) {
    Varint(uint64_t{field} << 3 | 2);
    Varint(value.size());
    bytes_ += value;
  }
  void Packed(uint32_t field, const std::vector<uint64_t>& values) {
    ProtoMessage packed;
    for (const uint64_t value : values)
      packed.Varint(value);
    Bytes(field, packed.bytes());
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace vramscope::output
