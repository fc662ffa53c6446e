// SPDX-License-Identifier: Apache-2.0
// The writers of iterations and leaks, against files of expected text.
#include <gtest/gtest.h>

#include <sstream>

#include "engine/model/parts.h"
#include "report/iterations_data.h"
#include "report/iterations_text.h"
#include "report/leaks_data.h"
#include "report/leaks_text.h"
#include "report/report_fixture.h"
#include "util/utf8.h"

namespace vramscope::report {
namespace {

constexpr uint64_t kMiB = 1ull << 20;

class IterationsTest : public testing::Test {
 protected:
  IterationsTest() {
    trace_.processes().push_back({.pid = 4711, .rank = 0, .command = "python train.py --big"});
    trace_.devices() = {{trace::DeviceKind::kGpu, 3, "", "NVIDIA H200", 0},
                        {trace::DeviceKind::kCpu, -1, "", "", 0}};
  }

  // Iterations of 250 ms; the one of number `worst` is higher by 100 MiB.
  void AddIterations(int64_t count, int64_t worst, int16_t device, uint64_t base) {
    for (int64_t i = 0; i < count; ++i) {
      engine::Iteration row;
      row.number = i;
      row.process = trace::ProcessId{0};
      row.device = trace::DeviceId{device};
      row.begin_ns = trace_.session().start_ns + i * 250'000'000;
      row.end_ns = row.begin_ns + 250'000'000;
      row.peak_bytes = base + (i == worst ? 100 * kMiB : 0);
      row.peak_ns = row.begin_ns + 125'000'000;
      row.end_bytes = base / 2;
      row.peak_allocated = base - 20 * kMiB;
      row.end_allocated = base / 4;
      row.peak_reserved = base - 10 * kMiB;
      row.end_reserved = base - 11 * kMiB;
      row.backward_temporary_peak = 7 * kMiB;
      row.before_recording_peak = 680 * kMiB;
      row.category_peak.assign(engine::kCategories, 0);
      row.category_end.assign(engine::kCategories, 0);
      row.category_peak[static_cast<size_t>(engine::Category::kActivation)] = base / 3;
      row.category_peak[static_cast<size_t>(engine::Category::kOptimizerState)] = 32 * kMiB;
      row.category_end[static_cast<size_t>(engine::Category::kOptimizerState)] = 32 * kMiB;
      iterations_.iterations.push_back(row);
    }
    iterations_.source = "optimizer steps";
  }

  void AddParameters(int layers) {
    for (int i = 0; i < layers; ++i) {
      const std::string layer = "h." + std::to_string(i) + ".fc";
      const uint64_t bytes = (static_cast<uint64_t>(i) + 1) * kMiB;
      const trace::ProcessId process{0};
      const trace::DeviceId device = iterations_.iterations.back().device;
      iterations_.parameters.push_back(
          {layer + ".weight", bytes, bytes, 2 * bytes, process, device});
      iterations_.parameters.push_back({layer + ".bias", 1024, 1024, 2048, process, device});
    }
  }

  std::string Text(size_t rows = 10) {
    return FormatIterations(iterations_, trace_, {.style = {.utf8 = true}, .rows = rows});
  }

  FakeTrace trace_;
  engine::Iterations iterations_;
};

void ExpectWidth(const std::string& text, size_t columns) {
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    EXPECT_LE(util::DisplayWidth(line), columns) << line;
}

TEST_F(IterationsTest, LongRunsFold) {
  AddIterations(100, 40, 0, 14'000 * kMiB);
  AddParameters(13);
  const std::string text = Text();
  EXPECT_EQ(text, Expected("iterations.txt", text));
  ExpectWidth(text, 80);
}

TEST_F(IterationsTest, ShortRunsAndZeroRowsAreWhole) {
  AddIterations(11, 0, 0, 500 * kMiB);
  EXPECT_EQ(Text().find("more)"), std::string::npos);
  AddIterations(100, 40, 0, 500 * kMiB);
  EXPECT_NE(Text().find("more)"), std::string::npos);
  EXPECT_EQ(Text(0).find("more)"), std::string::npos);
  EXPECT_NE(Text(0).find("\n   57 "), std::string::npos);
}

TEST_F(IterationsTest, SeveralDevicesAreApart) {
  AddIterations(2, 1, 0, 500 * kMiB);
  AddParameters(2);
  AddIterations(2, 0, 1, 90 * kMiB);
  iterations_.iterations.back().number = -1;
  const std::string text = Text();
  EXPECT_EQ(text, Expected("iterations_devices.txt", text));
}

TEST_F(IterationsTest, JsonAndCsv) {
  AddIterations(2, 1, 1, 500 * kMiB);
  AddParameters(1);
  const std::string json = IterationsJson(iterations_, trace_);
  EXPECT_EQ(json, Expected("iterations.json", json));
  const std::string csv = IterationsCsv(iterations_, trace_);
  EXPECT_EQ(csv, Expected("iterations.csv", csv));
}

engine::Leaks SomeLeaks(FakeTrace& trace) {
  const trace::StackId main = trace.PythonStack({}, "main", "/home/u/train.py", 90);
  const trace::StackId step = trace.PythonStack(main, "step", "/home/u/train.py", 42);
  engine::Leaks leaks;
  leaks.iterations = 40;
  leaks.warm_up = 3;
  leaks.growing = {{trace::DeviceId{0}, step, "train.py:42 in step", "model.h.0", "activation",
                    1.25 * static_cast<double>(kMiB), 5 * kMiB, 50 * kMiB, 40, true},
                   {trace::DeviceId{0}, {}, "", "", "unknown", 100.4, 0, 4016, 3, false}};
  leaks.never_freed = {
      {trace::DeviceId{1}, main, "train.py:90 in main", "", "temporary", 0, 0, 9 * kMiB, 2, false}};
  leaks.suppressed_bytes = 3 * kMiB;
  leaks.suppressed_count = 12;
  return leaks;
}

TEST_F(IterationsTest, Leaks) {
  const engine::Leaks leaks = SomeLeaks(trace_);
  const std::string text = FormatLeaks(leaks, trace_, {.style = {.utf8 = true}});
  EXPECT_EQ(text, Expected("leaks.txt", text));
  ExpectWidth(text, 80);
  const std::string json = LeaksJson(leaks, trace_);
  EXPECT_EQ(json, Expected("leaks.json", json));
  const std::string csv = LeaksCsv(leaks, trace_);
  EXPECT_EQ(csv, Expected("leaks.csv", csv));
}

TEST_F(IterationsTest, NoLeaks) {
  engine::Leaks leaks;
  leaks.iterations = 1;
  EXPECT_EQ(FormatLeaks(leaks, trace_, {}),
            "Nothing grows over 1 iteration.\n\n"
            "Never freed: nothing but parameters, buffers and optimizer state.\n");
  leaks.iterations = 0;
  EXPECT_NE(FormatLeaks(leaks, trace_, {}).find("vramscope.mark(\"iteration\")"),
            std::string::npos);
  EXPECT_NE(FormatLeaks(SomeLeaks(trace_), trace_, {.top = 1}).find("(1 more: --top 0"),
            std::string::npos);
}

}  // namespace
}  // namespace vramscope::report
