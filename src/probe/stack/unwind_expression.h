// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "probe/stack/unwind_cfi.h"
#include "probe/stack/unwind_window.h"

namespace vramscope::probe {

// What is known of a frame's registers, by DWARF number; the return address is its pc.
struct Registers {
  uint64_t value[kRegisterCount];
  uint32_t known;  // one bit a register

  bool Has(uint64_t number) const { return number < kRegisterCount && (known >> number & 1) != 0; }
  void Put(uint32_t number, uint64_t bits) {
    value[number] = bits;
    known |= uint32_t{1} << number;
  }
};

// Computes a DWARF expression as call frame information has it: arithmetic on registers and words
// of the stack. `first` is pushed before it begins, if it is not null. False where it does
// something else, needs what is not known, or reads outside of the stack.
bool Evaluate(ByteRange expression,
              const Registers& registers,
              const uint64_t* first,
              StackWindow* window,
              uint64_t* result);

}  // namespace vramscope::probe
