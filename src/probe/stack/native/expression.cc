// SPDX-License-Identifier: Apache-2.0
#include "probe/stack/native/cfi.h"
#include "probe/stack/native/window.h"

namespace vramscope::probe {
namespace {

constexpr uint32_t kMaxOperands = 16;

class Evaluation {
 public:
  Evaluation(ByteRange expression, const Registers& registers, StackWindow* window)
      : cursor_(expression), registers_(registers), window_(window) {}

  void Push(uint64_t value) {
    if (count_ == kMaxOperands)
      cursor_.Fail();
    else
      operands_[count_++] = value;
  }

  bool Run(uint64_t* result) {
    while (cursor_.ok() && !cursor_.AtEnd())
      Step(cursor_.U8());
    if (!cursor_.ok() || count_ == 0)
      return false;
    *result = operands_[count_ - 1];
    return true;
  }

 private:
  uint64_t Pop() {
    if (count_ == 0) {
      cursor_.Fail();
      return 0;
    }
    return operands_[--count_];
  }

  void PushSigned(int64_t value) { Push(static_cast<uint64_t>(value)); }

  void PushRegister(uint64_t number, int64_t offset) {
    if (!registers_.Has(number)) {
      cursor_.Fail();
      return;
    }
    Push(registers_.value[number] + static_cast<uint64_t>(offset));
  }

  void Step(uint8_t opcode) {
    if (opcode >= 0x30 && opcode <= 0x4f)  // DW_OP_lit0..31
      return Push(opcode - uint64_t{0x30});
    if (opcode >= 0x70 && opcode <= 0x8f)  // DW_OP_breg0..31
      return PushRegister(opcode - uint64_t{0x70}, cursor_.Sleb());
    switch (opcode) {
      case 0x06: {  // DW_OP_deref
        uint64_t word = 0;
        if (!window_->Read(Pop(), &word))
          cursor_.Fail();
        return Push(word);
      }
      case 0x08:  // DW_OP_const1u, and so on in pairs
        return Push(cursor_.U8());
      case 0x09:
        return PushSigned(cursor_.Fixed<int8_t>());
      case 0x0a:
        return Push(cursor_.Fixed<uint16_t>());
      case 0x0b:
        return PushSigned(cursor_.Fixed<int16_t>());
      case 0x0c:
        return Push(cursor_.Fixed<uint32_t>());
      case 0x0d:
        return PushSigned(cursor_.Fixed<int32_t>());
      case 0x0e:
      case 0x0f:
        return Push(cursor_.Fixed<uint64_t>());
      case 0x10:  // DW_OP_constu
        return Push(cursor_.Uleb());
      case 0x11:  // DW_OP_consts
        return PushSigned(cursor_.Sleb());
      case 0x12: {  // DW_OP_dup
        const uint64_t top = Pop();
        Push(top);
        return Push(top);
      }
      case 0x13:  // DW_OP_drop
        Pop();
        return;
      case 0x1f:  // DW_OP_neg
        return Push(0 - Pop());
      case 0x20:  // DW_OP_not
        return Push(~Pop());
      case 0x23:  // DW_OP_plus_uconst
        return Push(Pop() + cursor_.Uleb());
      case 0x96:  // DW_OP_nop
        return;
      default: {
        const uint64_t right = Pop();
        return Binary(opcode, Pop(), right);
      }
    }
  }

  void Binary(uint8_t opcode, uint64_t left, uint64_t right) {
    const auto signed_left = static_cast<int64_t>(left);
    const auto signed_right = static_cast<int64_t>(right);
    switch (opcode) {
      case 0x16:  // DW_OP_swap
        Push(right);
        return Push(left);
      case 0x1a:
        return Push(left & right);
      case 0x1c:
        return Push(left - right);
      case 0x1e:
        return Push(left * right);
      case 0x21:
        return Push(left | right);
      case 0x22:
        return Push(left + right);
      case 0x24:
        return Push(right < 64 ? left << right : 0);
      case 0x25:
        return Push(right < 64 ? left >> right : 0);
      case 0x27:
        return Push(left ^ right);
      case 0x29:
        return Push(left == right);
      case 0x2a:
        return Push(signed_left >= signed_right);
      case 0x2b:
        return Push(signed_left > signed_right);
      case 0x2c:
        return Push(signed_left <= signed_right);
      case 0x2d:
        return Push(signed_left < signed_right);
      case 0x2e:
        return Push(left != right);
      default:
        cursor_.Fail();
    }
  }

  ByteCursor cursor_;
  const Registers& registers_;
  StackWindow* const window_;
  uint64_t operands_[kMaxOperands] = {};
  uint32_t count_ = 0;
};

}  // namespace

bool Evaluate(ByteRange expression,
              const Registers& registers,
              const uint64_t* first,
              StackWindow* window,
              uint64_t* result) {
  Evaluation evaluation(expression, registers, window);
  if (first != nullptr)
    evaluation.Push(*first);
  return evaluation.Run(result);
}

}  // namespace vramscope::probe
