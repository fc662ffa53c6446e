// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "format/memory_words.h"
#include "output/report_fixture.h"
#include "output/text/text.h"

namespace vramscope::output {
namespace {

TEST(SummaryTest, EndsWithWhatToTypeNext) {
  FakeRecording recording;
  SummaryOptions options;
  options.utf8 = true;
  options.trace_path = "runs/first try.vram";
  const std::string text = FormatRunSummary(TrainingReport(recording), recording, options);
  EXPECT_EQ(text, Expected("summary.txt", text));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 50);
}

TEST(SummaryTest, NamesThePageWhereThereIsOne) {
  FakeRecording recording;
  SummaryOptions options;
  options.trace_path = "a.vram";
  options.html_path = "a.html";
  const std::string text = FormatRunSummary(TrainingReport(recording), recording, options);
  EXPECT_NE(text.find("Page:  a.html\n"), std::string::npos);
  EXPECT_EQ(text.find("vramscope open"), std::string::npos);
}

TEST(SummaryTest, NamesLeaksWhereThePeakIsInTheLastOfManyIterations) {
  FakeRecording recording;
  query::Report report = TrainingReport(recording);
  SummaryOptions options;
  options.trace_path = "a.vram";
  for (const auto& [peak, named] : {std::pair(5, true), std::pair(4, false)}) {
    report.devices[0].at_iteration = peak;
    const tables::ProcessId process{1};
    recording.edit().iterations = {{process, 4, 0, 10}, {process, 5, 10, 20}};
    const std::string text = FormatRunSummary(report, recording, options);
    EXPECT_EQ(text.find("       vramscope leaks a.vram\n") != std::string::npos, named) << text;
  }
}

TEST(SummaryTest, SaysNothingToTypeWhereNothingWasAllocated) {
  FakeRecording recording;
  query::Report report;
  SummaryOptions options;
  options.trace_path = "a.vram";
  const std::string text = FormatRunSummary(report, recording, options);
  EXPECT_EQ(text.find("Next:"), std::string::npos) << text;
  EXPECT_EQ(text.find("vramscope open"), std::string::npos) << text;
}

TEST(SummaryTest, SaysWherePyTorchIsTooOldForNames) {
  FakeRecording recording;
  const query::Report report = TrainingReport(recording);
  tables::Tables& tables = recording.edit();
  const auto text = [&](const char* version, const char* names) {
    tables.notes = {{recording.Intern(format::kTorchNote), recording.Intern(version)},
                    {recording.Intern(format::kTensorNamesNote), recording.Intern(names)}};
    return FormatRunSummary(report, recording, {});
  };
  EXPECT_EQ(text("2.2.0", "verified against PyTorch").find("Names:"), std::string::npos);
  EXPECT_EQ(text("2.10.0", "verified against PyTorch").find("Names:"), std::string::npos);
  EXPECT_NE(text("2.1.2+cu121", "verified against PyTorch")
                .find("Names: off for PyTorch 2.1.2+cu121: parameters and inputs are `unknown`\n"),
            std::string::npos);
  EXPECT_NE(text("9.0.0", "off: tensors are not as expected").find("Names: off for PyTorch 9.0.0"),
            std::string::npos);
}

TEST(InfoTest, Training) {
  FakeRecording recording;
  const query::Report report = TrainingReport(recording);
  recording.AddDevice(tables::DeviceKind::kGpu, 0, "GPU-1f2e3d4c", "NVIDIA H200", 143'771ull << 20);
  recording.AddDevice(tables::DeviceKind::kHost, -2, "", "host");
  recording.AddDevice(tables::DeviceKind::kGpu, 1);
  recording.AddProcess(4712, "python w\x1b[2J.py", 1);
  tables::Tables& tables = recording.edit();
  tables.processes[1].begin_ns = tables.session.begin_ns;
  tables.processes[1].end_ns = tables.session.end_ns;
  tables.processes[1].wait_status = 9;
  tables.processes[2].closed_cleanly = 1;
  tables.threads.resize(13);
  tables.notes = {{recording.Intern("kernel"), recording.Intern("Linux 6.1")},
                  {recording.Intern("python stacks"), recording.Intern("CPython 3.11, verified")}};
  const std::string text = FormatInfo(report, recording, {.utf8 = true});
  EXPECT_EQ(text, Expected("info.txt", text));
}

TEST(InfoTest, Troubled) {
  FakeRecording recording;
  const std::string text = FormatInfo(TroubledReport(recording), recording, {.utf8 = true});
  EXPECT_EQ(text, Expected("info_troubled.txt", text));
}

}  // namespace
}  // namespace vramscope::output
