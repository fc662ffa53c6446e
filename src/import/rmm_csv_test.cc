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

constexpr char kHeader[] = "Thread,Time,Action,Pointer,Size,Stream\n";

TEST(RmmCsv, AllocationsEndWhereTheyAreFreed) {
  const Imported log = ImportText(std::string(kHeader) +
                                      "7,23:59:59.500000,allocate,0x1000,1024,0x0\n"
                                      "8,00:00:00.000000,allocate,0x2000,512,0x5\n"
                                      "7,00:00:00.500000,free,0x1000,1024,0x0\n",
                                  {}, "rmm_log.dev2.csv");
  ASSERT_EQ(log.error, "");
  EXPECT_EQ(log.format, "rmm");
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_EQ(log.rows[0].bytes, 1024u);
  EXPECT_EQ(log.rows[0].address, 0x1000u);
  EXPECT_EQ(log.rows[0].begin_ns, 0);
  EXPECT_EQ(log.rows[0].end_ns, kSecondNs);
  EXPECT_EQ(log.rows[1].begin_ns, kSecondNs / 2);
  EXPECT_EQ(log.rows[1].end_ns, tables::kNever);
  const tables::SiteRow& site = log.tables.sites[log.rows[1].site.value];
  EXPECT_EQ(site.stream, 6u);
  EXPECT_EQ(log.tables.threads[site.thread.value].tid, 8u);
  EXPECT_EQ(log.DeviceOf(site.account), 2);
  EXPECT_THAT(log.Losses(), IsEmpty());
}

TEST(RmmCsv, TimesMayCountFrom1970AndTheHeaderMayBeMissing) {
  const Imported log = ImportText(std::string(kHeader) +
                                  "7,1634567890.123456,allocate,0x1000,1024,0x0\n"
                                  "7,1634567890.623456,deallocate,0x1000,1024,0x0\n");
  ASSERT_EQ(log.error, "");
  ASSERT_EQ(log.rows.size(), 1u);
  EXPECT_EQ(log.rows[0].end_ns, kSecondNs / 2);
  EXPECT_EQ(log.tables.session.begin_wall_ns, 1'634'567'890'123'456'000);
  const Imported spark = ImportText("7,14:21:19.998533,allocate,0x30a000000,256,0x2\n");
  EXPECT_EQ(spark.format, "rmm");
  EXPECT_EQ(spark.rows.size(), 1u);
  EXPECT_THAT(
      ImportText(std::string(kHeader) + "7,noon,allocate,0x1,1,0x0\n").error,
      ::testing::HasSubstr("1 rows that are no event of RMM; line 2: 'noon' is not a time"));
}

TEST(RmmCsv, WhatContradictsIsCounted) {
  const Imported log = ImportText(std::string(kHeader) +
                                  "7,10:00:00:000001,allocate,0x1000,1024,0x0\n"
                                  "7,10:00:00:000001,allocate,0x1000,2048,0x0\n"
                                  "7,10:00:00:000002,free,0x1000,99,0x0\n"
                                  "7,10:00:00:000003,free,0x1000,2048,0x0\n"
                                  "7,10:00:00:000004,allocate failure,0x0,4096,0x0\n"
                                  "7,10:00:00:000005,allocate,0x1,18446744073709551615,0x0\n"
                                  "7,25:00:00:000005,allocate,0x1,1,0x0\n"
                                  "7,10:00:00:000005,grow,0x1,1,0x0\n7,10\n");
  ASSERT_EQ(log.error, "");
  ASSERT_EQ(log.rows.size(), 2u);
  EXPECT_LT(log.rows[0].begin_ns, log.rows[0].end_ns);
  EXPECT_EQ(log.rows[1].bytes, 2048u);
  ASSERT_EQ(log.tables.out_of_memory.size(), 1u);
  EXPECT_EQ(log.tables.out_of_memory[0].requested_bytes, 4096u);
  EXPECT_THAT(log.Losses(),
              ElementsAre(Pair("allocations at a live address", 1u),
                          Pair("frees of unknown allocations", 1u),
                          Pair("frees that give another size than their allocation", 1u),
                          Pair("rows that are no event of RMM", 4u)));
}

}  // namespace
}  // namespace vramscope::imports
