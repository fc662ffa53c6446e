// SPDX-License-Identifier: Apache-2.0
#include "probe/stack/unwind_cfi.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "probe/stack/unwind_expression.h"
#include "probe/stack/unwind_rows.h"

namespace vramscope::probe {
namespace {

// One binary of one function, at 0x1000 behind its tables' beginning.
class Tables {
 public:
  static constexpr uint32_t kFunction = 0x1000;
  static constexpr uint32_t kSize = 0x100;

  explicit Tables(std::vector<uint8_t> program, const char* augmentation = "zR") {
    // .eh_frame_hdr: version, encodings, where .eh_frame is, one row.
    Put<uint8_t>({1, 0x1b, 0x03, 0x3b});
    Put<int32_t>({16});
    Put<uint32_t>({1});
    const size_t row = bytes_.size();
    Put<int32_t>({static_cast<int32_t>(kFunction), 0});
    const size_t cie = bytes_.size();
    std::vector<uint8_t> body{0, 0, 0, 0, 1};
    for (const char* c = augmentation; *c != '\0'; ++c)
      body.push_back(static_cast<uint8_t>(*c));
    body.insert(body.end(), {0, 1, 0x78, 16, 1, 0x1b});  // code 1, data -8, ra; pcrel sdata4
    body.insert(body.end(), {0x0c, 7, 8, 0x90, 1});      // CFA = rsp + 8, ra below it
    PutEntry(body);
    const size_t fde = bytes_.size();
    body.assign({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    const auto link = static_cast<uint32_t>(fde + 4 - cie);
    const auto begin = static_cast<int32_t>(kFunction - (fde + 8));
    std::memcpy(body.data(), &link, 4);
    std::memcpy(body.data() + 4, &begin, 4);
    std::memcpy(body.data() + 8, &kSize, 4);
    body.insert(body.end(), program.begin(), program.end());
    PutEntry(body);
    const auto offset = static_cast<int32_t>(fde);
    std::memcpy(bytes_.data() + row + 4, &offset, 4);
  }

  std::vector<uint8_t>& bytes() { return bytes_; }

  bool Find(uint32_t offset, CfiRules* rules) {
    header_ = {};
    header_.p_type = PT_LOAD;
    header_.p_flags = PF_R;
    header_.p_filesz = bytes_.size();
    const auto bias = reinterpret_cast<uintptr_t>(bytes_.data());
    const CodeModule module{bias, &header_, 1, bytes_.data()};
    return FindRules(module, bias + kFunction + offset, rules);
  }

 private:
  template <class T>
  void Put(std::initializer_list<T> values) {
    for (const T value : values) {
      const auto* const raw = reinterpret_cast<const uint8_t*>(&value);
      bytes_.insert(bytes_.end(), raw, raw + sizeof value);
    }
  }
  void PutEntry(const std::vector<uint8_t>& body) {
    Put<uint32_t>({static_cast<uint32_t>(body.size())});
    bytes_.insert(bytes_.end(), body.begin(), body.end());
  }

  std::vector<uint8_t> bytes_;
  ElfW(Phdr) header_{};
};

// push rbp at 1; mov rbp, rsp at 4; leave at 0x20, in the middle.
const std::vector<uint8_t> kFramePointer{
    0x41, 0x0e, 16,   0x86, 2,  // advance 1: CFA = rsp + 16, rbp at CFA - 16
    0x43, 0x0d, 6,              // advance 3: CFA = rbp + 16
    0x5c, 0x0a, 0x0c, 7,    8,  // advance 28, remember, CFA = rsp + 8
    0xc6,                       // rbp is the caller's
    0x41, 0x0b,                 // advance 1, restore
};

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
