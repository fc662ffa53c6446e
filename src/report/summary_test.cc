// SPDX-License-Identifier: Apache-2.0
#include "report/summary.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "report/fake_analysis.h"
#include "report/info.h"

namespace vramscope::report {
namespace {

TEST(SummaryTest, EndsWithWhatToTypeNext) {
  FakeAnalysis analysis;
  analysis.report = TrainingReport(analysis.trace_);
  SummaryOptions options;
  options.utf8 = true;
  options.trace_path = "runs/first try.vram";
  const auto text = FormatRunSummary(analysis, options);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, Expected("summary.txt", *text));
  EXPECT_LE(std::count(text->begin(), text->end(), '\n'), 50);
}

TEST(SummaryTest, NamesThePageWhereThereIsOne) {
  FakeAnalysis analysis;
  analysis.report = TrainingReport(analysis.trace_);
  SummaryOptions options;
  options.trace_path = "a.vram";
  options.html_path = "a.html";
  const auto text = FormatRunSummary(analysis, options);
  ASSERT_TRUE(text.ok());
  EXPECT_NE(text->find("Page:  a.html\n"), std::string::npos);
  EXPECT_EQ(text->find("--html"), std::string::npos);
}

TEST(SummaryTest, AnErrorIsTheAnalysis) {
  FakeAnalysis analysis;
  analysis.failure = util::Status::Error("a.vram: unreadable");
  const auto text = FormatRunSummary(analysis, {});
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.status().message(), "a.vram: unreadable");
}

TEST(InfoTest, Training) {
  FakeTrace trace;
  const engine::Report report = TrainingReport(trace);
  trace.devices() = {{trace::DeviceKind::kGpu, 0, "GPU-1f2e3d4c", "NVIDIA H200", 143'771ull << 20},
                     {trace::DeviceKind::kHost, -2, "", "host", 0},
                     {trace::DeviceKind::kGpu, 1, "", "", 0}};
  trace.processes()[0].start_ns = trace.session().start_ns;
  trace.processes()[0].end_ns = trace.session().end_ns;
  trace.processes()[0].wait_status = 9;
  trace.processes().push_back(
      {.pid = 4712, .rank = 1, .command = "python w\x1b[2J.py", .closed_cleanly = true});
  trace.threads().resize(13);
  trace.session().notes = {{"kernel", "Linux 6.1"}, {"python stacks", "CPython 3.11, verified"}};
  const std::string text = FormatInfo(report, trace, {.utf8 = true});
  EXPECT_EQ(text, Expected("info.txt", text));
}

TEST(InfoTest, Troubled) {
  FakeTrace trace;
  const std::string text = FormatInfo(TroubledReport(trace), trace, {.utf8 = true});
  EXPECT_EQ(text, Expected("info_troubled.txt", text));
}

}  // namespace
}  // namespace vramscope::report
