// SPDX-License-Identifier: Apache-2.0
#include "probe/stack/native/cfi.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "probe/stack/native/rows.h"
#include "probe/stack/native/testing_tables.h"
#include "probe/stack/native/window.h"

namespace vramscope::probe {
namespace {

using testing_tables::kFramePointer;
using testing_tables::Tables;

TEST(Cfi, SaysForEachAddressWhereTheCallerIs) {
  Tables tables(kFramePointer);
  CfiRules rules;
  ASSERT_TRUE(tables.Find(0, &rules));
  EXPECT_EQ(rules.cfa_register, kRegisterRsp);
  EXPECT_EQ(rules.cfa.value, 8);
  EXPECT_EQ(rules.registers[kReturnAddress].value, -8);
  EXPECT_EQ(rules.registers[kRegisterRbp].kind, CfiRule::kSame);
  ASSERT_TRUE(tables.Find(1, &rules));
  EXPECT_EQ(rules.cfa.value, 16);
  EXPECT_EQ(rules.registers[kRegisterRbp].value, -16);
  ASSERT_TRUE(tables.Find(0x1f, &rules));
  EXPECT_EQ(rules.cfa_register, kRegisterRbp);
  ASSERT_TRUE(tables.Find(0x20, &rules));
  EXPECT_EQ(rules.cfa_register, kRegisterRsp);
  EXPECT_EQ(rules.registers[kRegisterRbp].kind, CfiRule::kSame);
  ASSERT_TRUE(tables.Find(0x21, &rules));
  EXPECT_EQ(rules.cfa_register, kRegisterRbp);
  EXPECT_FALSE(rules.is_signal_frame);
  EXPECT_FALSE(tables.Find(Tables::kSize, &rules));
  EXPECT_FALSE(tables.Find(static_cast<uint32_t>(-1), &rules));
}

TEST(Cfi, KnowsSignalFramesAndRefusesWhatItDoesNotKnow) {
  CfiRules rules;
  ASSERT_TRUE(Tables(kFramePointer, "zRS").Find(5, &rules));
  EXPECT_TRUE(rules.is_signal_frame);
  EXPECT_FALSE(Tables(kFramePointer, "zRX").Find(5, &rules));
  EXPECT_FALSE(Tables({0x3f}).Find(5, &rules)) << "an unknown instruction";
  EXPECT_FALSE(Tables({0x0b}).Find(5, &rules)) << "restored and not remembered";
  EXPECT_FALSE(Tables({0x0a, 0x0a, 0x0a, 0x0a, 0x0a}).Find(5, &rules)) << "remembered too often";
  EXPECT_FALSE(Tables({0x0f, 100, 0x77}).Find(5, &rules)) << "an expression that goes on";
}

TEST(Cfi, SurvivesAnyDamage) {
  const Tables intact(kFramePointer);
  std::mt19937 random(7);
  size_t found = 0;
  for (int round = 0; round < 200000; ++round) {
    Tables tables = intact;
    std::vector<uint8_t>& bytes = tables.bytes();
    for (uint32_t i = random() % 4 + 1; i != 0; --i)
      bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    if (random() % 4 == 0)
      bytes.resize(random() % bytes.size() + 1);
    bytes.shrink_to_fit();
    CfiRules rules;
    found += tables.Find(random() % Tables::kSize, &rules) ? 1u : 0u;
  }
  EXPECT_GT(found, 1000u);
}

TEST(UnwindRow, KeepsWhatMostFramesNeed) {
  CfiRules rules;
  ASSERT_TRUE(Tables(kFramePointer).Find(0x10, &rules));
  const UnwindRow row(rules);
  EXPECT_EQ(row.kind(), UnwindRow::kFromRbp);
  EXPECT_EQ(row.cfa_offset(), 16);
  ASSERT_TRUE(row.has_rbp());
  EXPECT_EQ(row.rbp_offset(), -16);
  rules.cfa.value = -8;
  EXPECT_EQ(UnwindRow(rules).cfa_offset(), -8);
  rules.registers[kRegisterRbp].value = int64_t{1} << 30;
  EXPECT_EQ(UnwindRow(rules).kind(), UnwindRow::kOther);
  rules.is_signal_frame = true;
  EXPECT_EQ(UnwindRow(rules).kind(), UnwindRow::kOther);
  rules = {};
  rules.registers[kReturnAddress].kind = CfiRule::kUndefined;
  EXPECT_EQ(UnwindRow(rules).kind(), UnwindRow::kOutermost);
}

TEST(UnwindRow, IsFoundByAddressAndGeneration) {
  const auto cache = std::make_unique<RowCache>();
  const UnwindRow row(uint64_t{0x123400000001});
  for (uintptr_t pc = 0x400000; pc < 0x402000; ++pc) {
    cache->Insert(pc, 1, row);
    EXPECT_EQ(cache->Find(pc, 1).bits(), row.bits());
    EXPECT_EQ(cache->Find(pc, 2).kind(), UnwindRow::kNone);
  }
  EXPECT_EQ(cache->Find(0x500000, 1).kind(), UnwindRow::kNone);
}

bool Compute(std::vector<uint8_t> code, uint64_t* result) {
  uint64_t stack[4] = {11, 22, 33, 44};
  Registers registers{};
  registers.Put(kRegisterRsp, reinterpret_cast<uintptr_t>(stack));
  registers.Put(kReturnAddress, 0x100b);
  LoadStackBounds();
  StackWindow window(reinterpret_cast<uintptr_t>(stack));
  return Evaluate({code.data(), code.data() + code.size()}, registers, nullptr, &window, result);
}

TEST(Expression, ComputesWhatTablesHave) {
  uint64_t result = 0;
  // The linkage table's: 8 more from its 11th byte on. Here without rsp.
  ASSERT_TRUE(Compute({0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24}, &result));
  EXPECT_EQ(result, 8u);
  ASSERT_TRUE(Compute({0x77, 16, 0x06}, &result));
  EXPECT_EQ(result, 33u);
  ASSERT_TRUE(Compute({0x0a, 0x00, 0x10, 0x23, 5, 0x12, 0x1c, 0x09, 0xff, 0x22}, &result));
  EXPECT_EQ(result, ~uint64_t{0});
  EXPECT_FALSE(Compute({0x73, 0}, &result)) << "rbx is not known";
  EXPECT_FALSE(Compute({0x22}, &result)) << "nothing to add";
  EXPECT_FALSE(Compute({0x30, 0x06}, &result)) << "a word at 0";
  EXPECT_FALSE(Compute({0x2f, 0, 0}, &result)) << "jumps are not known";
  EXPECT_FALSE(Compute(std::vector<uint8_t>(100, 0x30), &result)) << "too many operands";
  EXPECT_FALSE(Compute({}, &result));
}

}  // namespace
}  // namespace vramscope::probe
