// SPDX-License-Identifier: Apache-2.0
#include "metrics/exposition.h"

#include <gtest/gtest.h>

namespace vramscope::cli {
namespace {

TEST(Exposition, PrintsWholeNumbersExactly) {
  Exposition out;
  out.Add(Metric::kLive, {{"gpu", "0"}, {"category", "parameter"}}, uint64_t{9007199254740993});
  EXPECT_NE(out.Text().find("vramscope_memory_bytes{gpu=\"0\",category=\"parameter\"} "
                            "9007199254740993\n"),
            std::string::npos);
}

TEST(Exposition, EscapesLabelsAndRepairsUtf8) {
  Exposition out;
  out.AddInfo(Metric::kProcessInfo, {{"command", "a\"b\\c\nd\xFF"}});
  EXPECT_NE(out.Text().find("{command=\"a\\\"b\\\\c\\nd\xEF\xBF\xBD\"} 1\n"), std::string::npos);
}

TEST(Exposition, HasOneSampleForEqualLabels) {
  Exposition out;
  out.Add(Metric::kRecordings, {}, uint64_t{1});
  out.Add(Metric::kRecordings, {}, uint64_t{2});
  out.AddWorst(Metric::kResidual, {{"gpu", "0"}}, 5);
  out.AddWorst(Metric::kResidual, {{"gpu", "0"}}, -7);
  const std::string text = out.Text();
  EXPECT_NE(text.find("\nvramscope_recordings 3\n"), std::string::npos);
  EXPECT_NE(text.find("\nvramscope_residual_bytes{gpu=\"0\"} -7\n"), std::string::npos);
}

TEST(Exposition, LeavesOutMetricsWithoutSamples) {
  EXPECT_EQ(Exposition().Text(), "");
}

}  // namespace
}  // namespace vramscope::cli
