// SPDX-License-Identifier: Apache-2.0
#include "probe/stack/native/rows.h"

namespace vramscope::probe {
namespace {

constexpr int64_t kMaxCfaOffset = int64_t{1} << 30;
constexpr int64_t kMaxRbpOffset = int64_t{1} << 22;

// "The word at rbp + offset": how a function finds the CFA that aligns its stack anew.
bool IsWordAtRbp(const CfiRule& rule, int64_t* offset) {
  ByteCursor cursor(rule.expression());
  if (rule.kind != CfiRule::kExpression || cursor.U8() != 0x70 + kRegisterRbp)
    return false;
  *offset = cursor.Sleb();
  return cursor.U8() == 0x06 && cursor.ok() && cursor.AtEnd();
}

bool IsSavedWhereRbpPoints(const CfiRule& rule) {
  ByteCursor cursor(rule.expression());
  return rule.kind == CfiRule::kExpression && cursor.U8() == 0x70 + kRegisterRbp &&
         cursor.Sleb() == 0 && cursor.ok() && cursor.AtEnd();
}

}  // namespace

UnwindRow::UnwindRow(const CfiRules& rules) : bits_(kOther) {
  const CfiRule& return_address = rules.registers[kReturnAddress];
  const CfiRule& rbp = rules.registers[kRegisterRbp];
  if (rules.is_signal_frame)
    return;
  if (return_address.kind == CfiRule::kUndefined) {
    bits_ = kOutermost;
    return;
  }
  if (return_address.kind != CfiRule::kOffset || return_address.value != -8 ||
      rules.registers[kRegisterRsp].kind != CfiRule::kSame) {
    return;
  }
  uint64_t bits = kNone;
  int64_t cfa_offset = rules.cfa.value;
  if (rules.cfa.kind == CfiRule::kOffset && rules.cfa_register == kRegisterRsp) {
    bits = kFromRsp;
  } else if (rules.cfa.kind == CfiRule::kOffset && rules.cfa_register == kRegisterRbp) {
    bits = kFromRbp;
  } else if (IsWordAtRbp(rules.cfa, &cfa_offset) && IsSavedWhereRbpPoints(rbp)) {
    bits = kFromRbpMemory;
  } else {
    return;
  }
  if (bits != kFromRbpMemory && rbp.kind == CfiRule::kOffset) {
    if (rbp.value <= -kMaxRbpOffset || rbp.value >= kMaxRbpOffset)
      return;
    bits |= kHasRbp | (static_cast<uint64_t>(rbp.value) & 0xffffff) << 8;
  } else if (bits != kFromRbpMemory && rbp.kind != CfiRule::kSame) {
    return;
  }
  if (cfa_offset <= -kMaxCfaOffset || cfa_offset >= kMaxCfaOffset)
    return;
  bits_ = bits | static_cast<uint64_t>(cfa_offset) << 32;
}

void RowCache::Insert(uintptr_t pc, uint64_t generation, UnwindRow row) {
  const uint64_t key = Key(pc, generation);
  Bucket& bucket = const_cast<Bucket&>(BucketOf(pc));
  // An empty slot, or a random one: rows that are often used come back.
  Entry* place = &bucket.entries[(key >> 4) & 3];
  for (Entry& entry : bucket.entries) {
    if (entry.bits.load(std::memory_order_relaxed) == UnwindRow::kNone) {
      place = &entry;
      break;
    }
  }
  place->bits.store(row.bits(), std::memory_order_relaxed);
  place->check.store(key ^ row.bits(), std::memory_order_relaxed);
}

}  // namespace vramscope::probe
