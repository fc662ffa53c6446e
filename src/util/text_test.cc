// SPDX-License-Identifier: Apache-2.0

#include "util/text.h"

#include <gtest/gtest.h>

namespace vramscope::util {
namespace {

TEST(TextCell, TextStaysAsItIs) {
  for (const char* text : {"", "h.0.attn", "naïve 名前 🙂", "a=b", "x - y", "train.py:12"}) {
    EXPECT_EQ(OneLine(text), text);
    EXPECT_EQ(CsvCell(text), text);
  }
  EXPECT_EQ(CsvCell("a, \"b\""), "\"a, \"\"b\"\"\"");
}

TEST(TextCell, NothingIsAFormula) {
  EXPECT_EQ(CsvCell("=HYPERLINK(\"http://x\",\"y\")"),
            "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\"");
  EXPECT_EQ(CsvCell("+1"), "'+1");
  EXPECT_EQ(CsvCell("-1+1"), "'-1+1");
  EXPECT_EQ(CsvCell("@SUM(A1)"), "'@SUM(A1)");
  EXPECT_EQ(CsvCell("\t=1"), "' =1");
  EXPECT_EQ(CsvCell("\r=1"), "' =1");
}

TEST(TextCell, ThereAreNoControlCharacters) {
  EXPECT_EQ(OneLine("a\nb\r\nc\td"), "a b  c d");
  EXPECT_EQ(OneLine("\x1b[31mred\x7f"), "\xef\xbf\xbd[31mred\xef\xbf\xbd");
  EXPECT_EQ(OneLine(std::string_view("a\0b", 3)),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(OneLine("\xc2\x9b"
                    "31m"),
            "\xef\xbf\xbd"
            "31m");  // U+009B begins a command as well
  EXPECT_EQ(OneLine("\xc2\xa0"), "\xc2\xa0");
}

TEST(TextCell, WhatIsNoUtf8IsReplaced) {
  EXPECT_EQ(OneLine("a\xff\xc0\xaf"), "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(CsvCell("\xff,"), "\"\xef\xbf\xbd,\"");
}

const std::vector<std::string> kCommands = {"run", "report", "info", "export", "finish", "env"};

TEST(ClosestName, FindsTypingMistakes) {
  EXPECT_EQ(ClosestName("reprot", kCommands), "report");
  EXPECT_EQ(ClosestName("rnu", kCommands), "run");
  EXPECT_EQ(ClosestName("finsh", kCommands), "finish");
  EXPECT_EQ(ClosestName("--no-pyton", {"--no-python", "--native"}), "--no-python");
}

TEST(ClosestName, TakesABeginning) {
  EXPECT_EQ(ClosestName("expo", kCommands), "export");
  EXPECT_EQ(ClosestName("--start", {"--start-paused", "--html"}), "--start-paused");
}

TEST(ClosestName, SaysNothingWhereNothingIsClose) {
  EXPECT_EQ(ClosestName("profile", kCommands), "");
  EXPECT_EQ(ClosestName("x", kCommands), "");
  EXPECT_EQ(ClosestName("-x", {"-o", "-h"}), "");
}

}  // namespace

}  // namespace vramscope::util
