// SPDX-License-Identifier: Apache-2.0
#include "record/sample/host_sampler.h"

#include <gtest/gtest.h>

namespace vramscope::cli {
namespace {

TEST(ParseHostUse, TakesWhatIsResident) {
  const HostUse use = ParseHostUse(
      "Name:\tVmRSS: 7 kB\nVmHWM:\t    9000 kB\nVmRSS:\t    4096 kB\nRssAnon:\t     100 kB\n"
      "RssFile:\t    1996 kB\nRssShmem:\t    2000 kB\n");
  EXPECT_EQ(use.resident_bytes, 4096u << 10);
  EXPECT_EQ(use.shared_bytes, 2000u << 10);
}

TEST(ParseHostUse, AProcessWithoutMemoryHasNone) {
  for (const char* text : {"", "Name:\tkthreadd\nState:\tS\n", "\nVmRSS:", "\nVmRSS:\t kB\n"}) {
    EXPECT_EQ(ParseHostUse(text).resident_bytes, 0u) << text;
    EXPECT_EQ(ParseHostUse(text).shared_bytes, 0u) << text;
  }
  EXPECT_EQ(ParseHostUse("\nVmRSS:\t99999999999999999999 kB\n").resident_bytes, 0u);
}

}  // namespace
}  // namespace vramscope::cli
