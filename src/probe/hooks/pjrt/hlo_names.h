// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace vramscope::probe::pjrt {

// What the program calls the arguments of a compiled program. JAX keeps the path of each in its
// pytree, such as state.params['Dense_0']['kernel'], as the name of an HLO parameter. A result that
// takes an argument's memory has its name too.
class HloNames {
 public:
  struct Text {
    const char* data = nullptr;
    uint32_t size = 0;
  };

  // From a serialized HloModuleProto, or an HloModuleProtoWithConfig around one. Null if there are
  // no names, or it is damaged. The result has pages of its own.
  static HloNames* Read(const uint8_t* proto, size_t size, bool has_config);
  static void Free(HloNames* names);

  Text Argument(size_t number) const { return number < argument_count_ ? texts()[number] : Text(); }
  Text Result(size_t number) const {
    return number < result_count_ ? texts()[argument_count_ + number] : Text();
  }

 private:
  const Text* texts() const { return reinterpret_cast<const Text*>(this + 1); }
  Text* texts() { return reinterpret_cast<Text*>(this + 1); }

  size_t mapped_bytes_;
  uint32_t argument_count_;
  uint32_t result_count_;
};

}  // namespace vramscope::probe::pjrt
