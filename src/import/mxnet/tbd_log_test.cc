// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "import/testing/imported.h"

namespace vramscope::imports {
namespace {

using ::testing::ElementsAre;
using testing::Imported;
using testing::ImportText;
using ::testing::IsEmpty;
using ::testing::Pair;

std::vector<std::pair<std::string, uint64_t>> RowsOf(const Imported& log) {
  std::vector<std::pair<std::string, uint64_t>> rows;
  for (const tables::AllocationRow& row : log.rows)
    rows.emplace_back(log.TagOf(row), row.bytes);
  return rows;
}

TEST(TbdLog, TagsMayHaveBlanksAndParentheses) {
  const Imported log = ImportText(
      "[trace] In SimpleBind.\n"
      "[mem] Allocate 1024 bytes GPU memory (in_arg:w).\n"
      "[mem] Allocate 64 bytes GPU memory ((source)).\n"
      "[mem] Allocate 64 bytes GPU memory (source).\n"
      "[mem] Allocate 64 bytes GPU memory (grad of data).\n");
  ASSERT_EQ(log.error, "");
  EXPECT_EQ(log.format, "tbd");
  EXPECT_THAT(RowsOf(log), ElementsAre(Pair("in_arg:w", 1024u), Pair("(source)", 64u),
                                       Pair("source", 64u), Pair("grad of data", 64u)));
  EXPECT_THAT(log.Losses(), IsEmpty());
}

TEST(TbdLog, OtherOutputStandsInBetween) {
  const Imported log = ImportText(
      "Epoch[0] 12%[mem] Allocate 8 bytes GPU memory (a).[mem] Allocate 9 bytes GPU memory (b). x\n"
      "Allocate 2 MB GPU memory (proposal_workspace).\n"
      "Allocate the buffers, then wait\n"
      "[mem] Allocate 7 bytes GPU mem\n"
      "[mem] Allocate 6 bytes GPU memory (cut o\n");
  ASSERT_EQ(log.error, "");
  EXPECT_THAT(RowsOf(log),
              ElementsAre(Pair("a", 8u), Pair("b", 9u), Pair("proposal_workspace", 2u << 20),
                          Pair("", 7u), Pair("cut o", 6u)));
  EXPECT_THAT(log.Losses(), IsEmpty());
}

TEST(TbdLog, WhatHasNoSizeIsCounted) {
  const Imported log = ImportText(
      "[mem] Allocate 8 bytes GPU memory (a).\n[mem] Allocate \n[mem] Allocate 8 by\n"
      "[mem] Allocate 99999999999999999999 bytes GPU memory (b).\n[mem] Release GPU memory.\n");
  EXPECT_EQ(log.rows.size(), 1u);
  EXPECT_THAT(log.Losses(), ElementsAre(Pair("allocations whose size cannot be read", 3u),
                                        Pair("frees that do not say of what", 1u)));
}

TEST(TbdLog, WhatTheDriverHadFreeIsASample) {
  const Imported log = ImportText(
      "[mem] 1 MB GPU global memory free, total 2 MB.\n"
      "[mem] Allocate 1024 bytes GPU memory (a).\n"
      "[mem] 10000 MB GPU global memory free, total 11000 MB.\n"
      "[mem] Allocate 1024 bytes GPU memory (b).\n"
      "[mem] 12000 MB GPU global memory free, total 11000 MB.\n");
  ASSERT_EQ(log.tables.samples.size(), 1u);
  EXPECT_EQ(log.tables.samples[0].used_bytes, uint64_t{1000} << 20);
  EXPECT_EQ(log.tables.samples[0].ledger_bytes, 1024);
  EXPECT_EQ(log.tables.samples[0].counted, 0);
  EXPECT_EQ(log.tables.devices[1].total_bytes, uint64_t{11000} << 20);
  EXPECT_EQ(log.tables.changes.size(), 2u);
}

TEST(TbdLog, TheFirstAllocationMayStandFarBehind) {
  std::string text;
  while (text.size() < 2 * Input::kHeadBytes)
    text += "INFO:root:Epoch[0] Batch [20] Speed: 120.51 samples/sec\r";
  EXPECT_EQ(ImportText(text + "[mem] Allocate 8 bytes GPU memory (a).\n").rows.size(), 1u);
}

TEST(TbdLog, AFileOfOneLineIsNotReadToItsEnd) {
  const std::string line(size_t{65} << 20, 'x');
  EXPECT_EQ(ImportText(line + "\n[mem] Allocate 8 bytes GPU memory (a).\n").format, "");
}

}  // namespace
}  // namespace vramscope::imports
