// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "query/advice/advice.h"
#include "query/allocator/allocator_settings.h"
#include "query/core/peaks.h"
#include "query/testing/random_recording.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;

class LocalMemoryRuleTest : public ::testing::Test {
 protected:
  LocalMemoryRuleTest() {
    gpu_ =
        builder_.Account(builder_.Process(100, 1000), builder_.Device(tables::DeviceKind::kGpu, 0));
    auto site = builder_.SiteOf(gpu_, Part::kAllocated, Category::kParameter);
    site.allocator = builder_.Text("PyTorch");
    builder_.Row(builder_.Site(site), 10, 900, 300 * kMebibyte);
  }

  void Launch(const std::string& kernel, int64_t mib, int64_t time_ns = 20) {
    auto site = builder_.SiteOf(gpu_, Part::kLaunch, Category::kDriver);
    site.trigger = builder_.Text("cuLaunchKernel " + kernel);
    builder_.Step(builder_.Counter(builder_.Site(site)), time_ns,
                  mib * static_cast<int64_t>(kMebibyte));
  }
  Savings Advice() {
    auto recording = builder_.Make();
    builder_.tables.peaks = *FindPeaks(*recording);
    recording = builder_.Make();
    auto savings = FindSavings(*recording, {});
    EXPECT_TRUE(savings.ok()) << savings.status().message();
    return savings.ok() ? *savings : Savings();
  }

  RecordingBuilder builder_;
  tables::AccountId gpu_;
};

TEST_F(LocalMemoryRuleTest, WhatIsPromisedIsThePeakWithout) {
  Launch("add", 4);
  const uint64_t without = Advice().device_peak_bytes;
  Launch("triton_mm_7", 264);
  const Savings savings = Advice();
  ASSERT_EQ(savings.savings.size(), 1u);
  const Saving& saving = savings.savings[0];
  EXPECT_EQ(saving.rule, "local_memory");
  EXPECT_EQ(saving.change,
            "do without the kernel triton_mm_7, such as by leaving it out when kernels are tuned");
  EXPECT_EQ(saving.lowers, "device");
  EXPECT_EQ(saving.confidence, "at most");
  EXPECT_EQ(saving.saves_bytes, 264 * kMebibyte);
  EXPECT_EQ(saving.peak_bytes, without);
}

TEST_F(LocalMemoryRuleTest, NotSeveralKernels) {
  Launch("first", 132);
  Launch("second", 132);
  EXPECT_TRUE(Advice().savings.empty());
}

TEST_F(LocalMemoryRuleTest, NotALittle) {
  Launch("add", 99);
  EXPECT_TRUE(Advice().savings.empty());
}

TEST_F(LocalMemoryRuleTest, NotAfterThePeak) {
  Launch("walk", 264, 950);
  EXPECT_TRUE(Advice().savings.empty());
}

TEST_F(LocalMemoryRuleTest, NotWhereSeveralCallsTookItTogether) {
  Launch("walk + cuModuleLoadData", 264);
  EXPECT_TRUE(Advice().savings.empty());
}

}  // namespace
}  // namespace vramscope::query
