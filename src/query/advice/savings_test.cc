// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "query/advice/advice.h"
#include "query/core/peaks.h"
#include "query/testing/random_recording.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;

// A process alone on its GPU: its total is the device's, found by the sweep.
TEST(SavingsTest, ItsPeakIsTheAllocatedPeak) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    RecordingBuilder builder = RandomRecording(seed, 5'000, 1'000'000);
    tables::Tables& tables = builder.tables;
    const tables::AccountId kept{4};  // the second process, on the first GPU
    const auto is_other = [&](tables::SiteId site) {
      return tables.sites[site.value].account != kept;
    };
    std::erase_if(builder.rows, [&](const auto& row) { return is_other(row.site); });
    std::erase_if(tables.steps, [&](const auto& step) {
      return is_other(tables.counters[step.counter.value].site);
    });
    tables.checkpointed.clear();
    const auto recording = builder.Make(512);
    const auto peaks = AllocatedPeaks(*recording);
    ASSERT_TRUE(peaks.ok());
    const auto peak = std::find_if(peaks->begin(), peaks->end(), [&](const auto& row) {
      return row.device == tables.accounts[kept.value].device;
    });
    ASSERT_NE(peak, peaks->end());
    const auto savings = FindSavings(*recording, {});
    ASSERT_TRUE(savings.ok()) << savings.status().message();
    EXPECT_EQ(savings->device, peak->device) << seed;
    EXPECT_EQ(savings->allocated_peak_bytes, peak->bytes) << seed;
    uint64_t sum = 0;
    for (const NamedBytes& category : savings->categories)
      sum += category.bytes;
    EXPECT_EQ(sum, peak->bytes) << seed;
  }
}

// The process that has most at once counts, not the one that allocates most often.
TEST(SavingsTest, TheLargestProcessIsAdvised) {
  RecordingBuilder builder;
  const auto gpu = builder.Device(tables::DeviceKind::kGpu, 0);
  const auto busy = builder.Account(builder.Process(100, 100), gpu);
  const auto large = builder.Account(builder.Process(101, 100), gpu);
  const auto often = builder.Site(builder.SiteOf(busy, Part::kAllocated, Category::kTemporary));
  for (int64_t begin_ns = 1; begin_ns < 100; ++begin_ns)
    builder.Row(often, begin_ns, begin_ns + 1, 1000);
  builder.Row(builder.Site(builder.SiteOf(large, Part::kAllocated, Category::kParameter)), 10, 90,
              5000);
  const auto recording = builder.Make();
  const auto savings = FindSavings(*recording, 4000);
  ASSERT_TRUE(savings.ok());
  EXPECT_EQ(recording->tables().processes[savings->process.value].pid, 101u);
  EXPECT_EQ(savings->allocated_peak_bytes, 5000u);
}

}  // namespace
}  // namespace vramscope::query
