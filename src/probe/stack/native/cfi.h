// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <link.h>

#include <cstdint>
#include <cstring>

#include "base/compiler.h"

// Call frame information: how a binary's .eh_frame describes the way to a function's caller (DWARF
// 5 section 6.4, and the Linux Standard Base for what .eh_frame adds). x86-64.
//
// Every byte is looked at with its bounds; what is damaged is an error and never a loop.
namespace vramscope::probe {

struct ByteRange {
  const uint8_t* begin = nullptr;
  const uint8_t* end = nullptr;

  bool Contains(const uint8_t* at) const { return at >= begin && at < end; }
};

// How a pointer is written in .eh_frame and .eh_frame_hdr (DW_EH_PE_*).
inline constexpr uint8_t kPointerOmitted = 0xff;
inline constexpr uint8_t kPointerTableOfInt32 = 0x3b;  // datarel, sdata4

// Reads a range of bytes from its beginning on. Reads past the end return zero, and the cursor is
// not ok() from there on.
class ByteCursor {
 public:
  explicit ByteCursor(ByteRange range) : at_(range.begin), end_(range.end) {}

  bool ok() const { return ok_; }
  bool AtEnd() const { return at_ >= end_; }
  const uint8_t* at() const { return at_; }
  size_t left() const { return static_cast<size_t>(end_ - at_); }
  bool Fail() { return ok_ = false; }

  template <class T>
  T Fixed() {
    T value{};
    if (!Has(sizeof value))
      return value;
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  uint8_t U8() { return Fixed<uint8_t>(); }

  uint64_t Uleb() { return Leb(false); }
  int64_t Sleb() { return static_cast<int64_t>(Leb(true)); }

  // A pointer as `encoding` says; `data_base` is what datarel ones count from. Indirect ones and
  // those that count from text or functions are not in use on Linux, and fail.
  uint64_t Pointer(uint8_t encoding, const uint8_t* data_base) {
    const auto here = reinterpret_cast<uintptr_t>(at_);
    uint64_t value = 0;
    switch (encoding & 0x0f) {
      case 0x00:
      case 0x04:
      case 0x0c:
        value = Fixed<uint64_t>();
        break;
      case 0x01:
        value = Uleb();
        break;
      case 0x02:
        value = Fixed<uint16_t>();
        break;
      case 0x03:
        value = Fixed<uint32_t>();
        break;
      case 0x09:
        value = static_cast<uint64_t>(Sleb());
        break;
      case 0x0a:
        value = static_cast<uint64_t>(int64_t{Fixed<int16_t>()});
        break;
      case 0x0b:
        value = static_cast<uint64_t>(int64_t{Fixed<int32_t>()});
        break;
      default:
        Fail();
    }
    switch (encoding & 0xf0) {
      case 0x00:
        return value;
      case 0x10:
        return value + here;
      case 0x30:
        return value + reinterpret_cast<uintptr_t>(data_base);
      default:
        Fail();
        return 0;
    }
  }

  // The next `size` bytes, which the cursor passes over.
  ByteRange Take(uint64_t size) {
    if (!Has(size))
      return {};
    const ByteRange taken{at_, at_ + size};
    at_ += size;
    return taken;
  }

 private:
  uint64_t Leb(bool is_signed) {
    uint64_t value = 0;
    uint8_t byte = 0;
    unsigned shift = 0;
    do {
      byte = U8();
      if (shift < 64)
        value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      shift += 7;
    } while ((byte & 0x80) != 0);
    if (is_signed && (byte & 0x40) != 0 && shift < 64)
      value |= ~uint64_t{0} << shift;
    return value;
  }

  bool Has(uint64_t size) {
    if (VRAMSCOPE_UNLIKELY(size > left())) {
      at_ = end_;
      return Fail();
    }
    return true;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  bool ok_ = true;
};

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

  // The readable segment of the file around `at`, empty if there is none.
  ByteRange SegmentAround(const uint8_t* at) const;
};

// The rule for the caller's value of a register. CFA is the stack pointer before the call.
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

// The rules that hold at `pc`. False if the module has none for it, or they are damaged.
bool FindRules(const CodeModule& module, uintptr_t pc, CfiRules* rules);

// ---- expressions

class StackWindow;

// The known registers of a frame, by DWARF number; the return address is its pc.
struct Registers {
  uint64_t value[kRegisterCount];
  uint32_t known;  // one bit a register

  bool Has(uint64_t number) const { return number < kRegisterCount && (known >> number & 1) != 0; }
  void Put(uint32_t number, uint64_t bits) {
    value[number] = bits;
    known |= uint32_t{1} << number;
  }
};

// Computes a DWARF expression of call frame information: arithmetic on registers and words of the
// stack. `first` is pushed before it begins, if it is not null. False if it does something else,
// needs what is not known, or reads outside of the stack.
bool Evaluate(ByteRange expression,
              const Registers& registers,
              const uint64_t* first,
              StackWindow* window,
              uint64_t* result);

}  // namespace vramscope::probe
