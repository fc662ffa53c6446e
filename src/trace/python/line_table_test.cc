// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "trace/python/lines.h"

namespace vramscope::trace {
namespace {

std::vector<uint8_t> FromHex(const std::string& hex) {
  std::vector<uint8_t> bytes;
  if (hex == "-")
    return bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

class PythonLineTableTest : public ::testing::TestWithParam<const char*> {};

// Every instruction of dataclasses.py and textwrap.py, as PyCode_Addr2Line() of that version
// answers: testdata/make_line_tables.py.
TEST_P(PythonLineTableTest, AgreesWithCPython) {
  std::ifstream in(std::string(VRAMSCOPE_TESTDATA) + "/lines_" + GetParam() + ".txt");
  ASSERT_TRUE(in);
  std::string what;
  int kind = 0;
  ASSERT_TRUE(in >> what >> kind);
  PythonLineTable table;
  uint64_t offset = 0;
  size_t checked = 0;
  while (in >> what) {
    if (what == "c") {
      uint32_t first_line = 0;
      std::string hex;
      in >> first_line >> hex;
      table = PythonLineTable(static_cast<format::LineTableKind>(kind), first_line, FromHex(hex));
      offset = 0;
      continue;
    }
    uint64_t end = 0;
    uint32_t line = 0;
    in >> end >> line;
    for (; offset < end; offset += 2, ++checked) {
      ASSERT_EQ(table.LineAt(offset), line) << GetParam() << " offset " << offset;
    }
  }
  EXPECT_GT(checked, 4000u);
}

INSTANTIATE_TEST_SUITE_P(Versions,
                         PythonLineTableTest,
                         ::testing::Values("3.9", "3.10", "3.11", "3.13"));

TEST(PythonLineTable, WithoutATableIsTheFirstLine) {
  EXPECT_EQ(PythonLineTable(format::LineTableKind::kNone, 17, {}).LineAt(40), 17u);
  const std::vector<uint8_t> some = {1, 2, 3};
  EXPECT_EQ(PythonLineTable(static_cast<format::LineTableKind>(77), 17, some).LineAt(0), 17u);
}

TEST(PythonLineTable, TakesAnyBytes) {
  std::mt19937 random(1);
  for (int round = 0; round < 5000; ++round) {
    std::vector<uint8_t> bytes(random() % 64);
    for (uint8_t& byte : bytes)
      byte = static_cast<uint8_t>(random() | (round % 2 == 0 ? 0x80u : 0u));
    for (const auto kind : {format::LineTableKind::kLnotab, format::LineTableKind::kPep626,
                            format::LineTableKind::kLocations}) {
      const PythonLineTable table(kind, static_cast<uint32_t>(random()), bytes);
      for (uint64_t offset = 0; offset < 600; offset += 2)
        (void)table.LineAt(offset);
    }
  }
}

}  // namespace
}  // namespace vramscope::trace
