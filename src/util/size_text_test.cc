// SPDX-License-Identifier: Apache-2.0

#include "util/size_text.h"

#include <gtest/gtest.h>

#include <limits>

#include "util/text.h"

namespace vramscope::util {
namespace {

TEST(SizeText, ParsesWhatPeopleType) {
  EXPECT_EQ(*ParseSize("0"), 0u);
  EXPECT_EQ(*ParseSize("1500000"), 1500000u);
  EXPECT_EQ(*ParseSize("1.5G"), 3u << 29);
  EXPECT_EQ(*ParseSize("200MiB"), 200u << 20);
  EXPECT_EQ(*ParseSize("64 kb"), 64u << 10);
  EXPECT_EQ(*ParseSize("2T"), uint64_t{2} << 40);
  EXPECT_EQ(*ParseSize("7B"), 7u);
  EXPECT_EQ(*ParseSize(".5K"), 512u);
  EXPECT_EQ(*ParseSize("0.1G"), 107374182u);
  EXPECT_EQ(*ParseSize("18446744073709551615"), std::numeric_limits<uint64_t>::max());
}

TEST(SizeText, RefusesEverythingElse) {
  for (const char* text :
       {"", "G", "-1", "1.5", "1X", "1GG", "1 G B", "1e9", "nan", "1.2.3G", "1iB",
        "18446744073709551616", "16777216T", "1,000", "1Gi", ".", "1K5"}) {
    const auto size = ParseSize(text);
    EXPECT_FALSE(size.ok()) << text;
    if (!size.ok()) {
      EXPECT_NE(size.status().message().find("is not a size"), std::string::npos);
    }
  }
}

TEST(SizeText, FormatsThreeSignificantDigits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.00 KiB");
  EXPECT_EQ(FormatBytes(23'400'000), "22.3 MiB");
  EXPECT_EQ(FormatBytes(97u << 18), "24.3 MiB");  // 24.25, as a column of MiB has it
  EXPECT_EQ(FormatBytes(9u << 17), "1.13 MiB");   // 1.125
  EXPECT_EQ(FormatBytes(201u << 19), "101 MiB");  // 100.5
  EXPECT_EQ(FormatBytes(3u << 29), "1.50 GiB");
  EXPECT_EQ(FormatBytes((1u << 20) - 1), "1.00 MiB");
  EXPECT_EQ(FormatBytes(10230), "9.99 KiB");
  EXPECT_EQ(FormatBytes(10239), "10.0 KiB");
  EXPECT_EQ(FormatBytes(std::numeric_limits<uint64_t>::max()), "16.0 EiB");
  EXPECT_EQ(FormatSignedBytes(-2048), "-2.00 KiB");
  EXPECT_EQ(FormatSignedBytes(2048), "+2.00 KiB");
  EXPECT_EQ(FormatSignedBytes(0), "0 B");
  EXPECT_EQ(FormatSignedBytes(std::numeric_limits<int64_t>::min()), "-8.00 EiB");
}

TEST(SizeText, FormatsDurationsAndCounts) {
  EXPECT_EQ(FormatDuration(850), "850 ns");
  EXPECT_EQ(FormatDuration(12'345), "12.3 us");
  EXPECT_EQ(FormatDuration(4'560'000), "4.56 ms");
  EXPECT_EQ(FormatDuration(1'500'000'000), "1.50 s");
  EXPECT_EQ(FormatDuration(59'960'000'000), "1 min 00 s");
  EXPECT_EQ(FormatDuration(125'000'000'000), "2 min 05 s");
  EXPECT_EQ(FormatDuration(11'220'000'000'000), "3 h 07 min");
  EXPECT_EQ(FormatDuration(-1500), "-1.50 us");
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
}

TEST(Utf8, CountsColumns) {
  EXPECT_EQ(DisplayWidth("gr\xc3\xbc\xc3\x9f"), 4u);
  EXPECT_EQ(DisplayWidth("u\xcc\x88"), 1u);  // u and a combining diaeresis
  EXPECT_EQ(DisplayWidth("\u5c42\u4e00a"), 5u);
  EXPECT_EQ(DisplayWidth("\ud55c\u30ab\uff21"), 6u);
  EXPECT_EQ(DisplayWidth("\U0001f600\u2026\u2588\u2192"), 5u);
  EXPECT_EQ(DisplayWidth("\u2764\ufe0f"), 1u);
  EXPECT_EQ(DisplayWidth("\xff\xe5\xb1"), 3u);  // no UTF-8
  EXPECT_EQ(DisplayWidth("\xff"), 1u);
  EXPECT_EQ(ValidUtf8("a\xff"), "a\xef\xbf\xbd");
}

TEST(NumberText, IsAllOfTheText) {
  EXPECT_EQ(WholeNumber<uint32_t>("4711"), 4711u);
  EXPECT_EQ(WholeNumber<int64_t>("-1"), -1);
  EXPECT_EQ(WholeNumber<double>("0.5"), 0.5);
  for (const char* text : {"", " 1", "1 ", "+1", "-1", "1.5", "4294967296", "0x10"})
    EXPECT_EQ(WholeNumber<uint32_t>(text), std::nullopt) << text;
}

TEST(NumberText, WritesAddresses) {
  EXPECT_EQ(HexText(0), "0x0");
  EXPECT_EQ(HexText(0x7f00), "0x7f00");
  EXPECT_EQ(HexText(UINT64_MAX), "0xffffffffffffffff");
}

}  // namespace

}  // namespace vramscope::util
