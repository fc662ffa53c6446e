// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <string_view>
#include <vector>

// A protobuf message while it is written. Fields that have their default value are left out, as
// proto3 does; a copy is a message of its own, which a protozero::pbf_writer is not.
namespace vramscope::output {

class ProtoMessage {
 public:
  void Number(uint32_t field, uint64_t value) {
    if (value != 0)
      NumberOrZero(field, value);
  }
  // Where it matters that it is there: members of a oneof.
  void NumberOrZero(uint32_t field, uint64_t value) { Writer().add_uint64(field, value); }
  // Strings and messages.
  void Bytes(uint32_t field, std::string_view value) {
    Writer().add_bytes(field, value.data(), value.size());
  }
  void Packed(uint32_t field, const std::vector<uint64_t>& values) {
    Writer().add_packed_uint64(field, values.begin(), values.end());
  }
  const std::string& bytes() const { return bytes_; }

 private:
  protozero::pbf_writer Writer() { return protozero::pbf_writer(bytes_); }

  std::string bytes_;
};

}  // namespace vramscope::output
