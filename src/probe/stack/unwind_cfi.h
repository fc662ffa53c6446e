// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <link.h>

#include <cstdint>

#include "probe/stack/unwind_cursor.h"

// Call frame information: what a binary's .eh_frame says about finding a function's caller (DWARF 5
// section 6.4, and the Linux Standard Base for what .eh_frame adds). x86-64.
//
// Every byte is looked at with its bounds; what is damaged is an error and never a loop.
namespace vramscope::probe {

// DWARF's numbers of the registers.
inline constexpr uint32_t kRegisterRbx = 3;
inline constexpr uint32_t kRegisterRbp = 6;
inline constexpr uint32_t kRegisterRsp = 7;
inline constexpr uint32_t kRegisterR12 = 12;
inline constexpr uint32_t kReturnAddress = 16;
inline constexpr uint32_t kRegisterCount = 17;

// A loaded binary, as far as its unwinding tables go. The program headers are the loader's.
struct CodeModule {
  uintptr_t bias = 0;
  const ElfW(Phdr) * headers = nullptr;
  uint32_t header_count = 0;
  const uint8_t* eh_frame_hdr = nullptr;

  // The readable segment of the file around `at`, empty where there is none.
  ByteRange SegmentAround(const uint8_t* at) const;
};

// Where the caller's value of a register is, CFA being the stack pointer before the call.
struct CfiRule {
  enum Kind : uint8_t {
    kSame,             // not touched
    kUndefined,        // lost
    kOffset,           // at CFA + value
    kValueOffset,      // is CFA + value
    kRegister,         // in register `value`
    kExpression,       // at the address that the expression gives
    kValueExpression,  // is what the expression gives
  };
  Kind kind = kSame;
  uint32_t size_bytes = 0;  // of an expression
  int64_t value = 0;        // of an expression: its address

  ByteRange expression() const {
    const auto* const begin = reinterpret_cast<const uint8_t*>(value);
    return {begin, begin + size_bytes};
  }
};

struct CfiRules {
  CfiRule cfa;  // kOffset: cfa_register + value; kExpression: is what the expression gives
  uint32_t cfa_register = 0;
  CfiRule registers[kRegisterCount];
  bool is_signal_frame = false;
};

// The rules that hold at `pc`. False where the module has none for it, or they are damaged.
bool FindRules(const CodeModule& module, uintptr_t pc, CfiRules* rules);

}  // namespace vramscope::probe
