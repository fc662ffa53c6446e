// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/pjrt/hlo_names.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

namespace vramscope::probe::pjrt {
namespace {

std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7)
    out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

std::string Number(uint32_t field, uint64_t value) {
  return Varint(field << 3) + Varint(value);
}

std::string Text(uint32_t field, const std::string& text) {
  return Varint(field << 3 | 2) + Varint(text.size()) + text;
}

std::string Parameter(uint64_t number, const std::string& name) {
  const std::string said =
      Text(1, "p") + Text(2, "parameter") + Text(7, Text(1, "t") + Text(2, name));
  return Text(2, number == 0 ? said : said + Number(9, number));
}

// { {result}: (parameter, {}) }
std::string Alias(uint64_t result, uint64_t parameter) {
  return Text(
      1, Text(1, Varint(result)) + (parameter == 0 ? "" : Number(2, parameter)) + Number(4, 1));
}

std::string Step() {
  const std::string other = Text(1, "fused") + Parameter(0, "of a fusion") + Number(5, 3);
  const std::string entry = Text(1, "main") + Parameter(1, "state.params['Dense_0']['kernel']") +
                            Text(2, Text(2, "add") + Text(7, Text(2, "jit(step)/add"))) +
                            Parameter(0, "state.step") + Parameter(2, "batch['x']") + Number(5, 7);
  return Text(1, "jit_step") + Text(3, other) + Text(3, entry) + Number(6, 7) +
         Text(8, Alias(0, 0) + Alias(2, 1));
}

struct Deleter {
  void operator()(HloNames* names) const { HloNames::Free(names); }
};
using Names = std::unique_ptr<HloNames, Deleter>;

Names Read(const std::string& proto, bool has_config = false) {
  return Names(
      HloNames::Read(reinterpret_cast<const uint8_t*>(proto.data()), proto.size(), has_config));
}

std::string Of(HloNames::Text text) {
  return {text.data, text.size};
}

TEST(HloNames, ArgumentsAndTheResultsThatTakeTheirMemory) {
  for (const bool has_config : {false, true}) {
    const Names names = Read(has_config ? Text(1, Step()) + Text(2, "config") : Step(), has_config);
    ASSERT_NE(names, nullptr);
    EXPECT_EQ(Of(names->Argument(0)), "state.step");
    EXPECT_EQ(Of(names->Argument(1)), "state.params['Dense_0']['kernel']");
    EXPECT_EQ(Of(names->Argument(2)), "batch['x']");
    EXPECT_EQ(names->Argument(3).size, 0u);
    EXPECT_EQ(Of(names->Result(0)), "state.step");
    EXPECT_EQ(names->Result(1).size, 0u);
    EXPECT_EQ(Of(names->Result(2)), "state.params['Dense_0']['kernel']");
    EXPECT_EQ(names->Result(3).size, 0u);
  }
}

TEST(HloNames, NoneIsNull) {
  EXPECT_EQ(Read(""), nullptr);
  EXPECT_EQ(Read(Text(1, "jit_constant") + Text(3, Number(5, 1)) + Number(6, 1)), nullptr);
  EXPECT_EQ(Read(Step(), true), nullptr);
}

TEST(HloNames, APartOfAnArgumentIsNoName) {
  const std::string part = Text(1, Text(1, Varint(0)) + Text(3, Varint(1)));
  const Names names = Read(Step() + Text(8, part));
  ASSERT_NE(names, nullptr);
  EXPECT_EQ(names->Result(0).size, 0u);
}

TEST(HloNames, DamagedBytesAreReadWithinTheirBounds) {
  const std::string whole = Step();
  std::mt19937 random(1);
  for (size_t size = 0; size < whole.size(); ++size) {
    // Of its own size, so that a sanitizer sees what is read beyond.
    const auto cut = std::make_unique<uint8_t[]>(size);
    std::copy(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size), cut.get());
    HloNames::Free(HloNames::Read(cut.get(), size, false));
    if (size != 0) {
      cut[random() % size] = static_cast<uint8_t>(random());
      HloNames::Free(HloNames::Read(cut.get(), size, false));
    }
  }
}

}  // namespace
}  // namespace vramscope::probe::pjrt
