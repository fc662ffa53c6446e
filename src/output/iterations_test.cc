// SPDX-License-Identifier: Apache-2.0
// The writers of iterations and leaks, against files of expected text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <sstream>

#include "base/units.h"
#include "format/memory_words.h"
#include "output/answers.h"
#include "output/report_fixture.h"
#include "util/text.h"

namespace vramscope::output {
namespace {

class IterationsTest : public testing::Test {
 protected:
  IterationsTest() {
    recording_.AddProcess(4711, "python train.py --big", 0);
    recording_.AddDevice(tables::DeviceKind::kGpu, 3, "", "NVIDIA H200");
    recording_.AddDevice(tables::DeviceKind::kCpu, -1);
  }

  // Iterations of 250 ms; the one of number `worst` is higher by 100 MiB.
  void AddIterations(int64_t count, int64_t worst, uint32_t device, uint64_t base) {
    for (int64_t i = 0; i < count; ++i) {
      query::Iteration row;
      row.number = i;
      row.process = tables::ProcessId{1};
      row.device = tables::DeviceId{device + 1};
      row.begin_ns = recording_.tables().session.begin_ns + i * 250'000'000;
      row.end_ns = row.begin_ns + 250'000'000;
      row.peak_bytes = base + (i == worst ? 100 * kMiB : 0);
      row.peak_ns = row.begin_ns + 125'000'000;
      row.end_bytes = base / 2;
      row.peak_allocated = base - 20 * kMiB;
      row.peak_allocated_ns = row.begin_ns + 100'000'000;
      row.end_allocated = base / 4;
      row.peak_reserved = base - 10 * kMiB;
      row.end_reserved = base - 11 * kMiB;
      row.backward_temporary_peak = 7 * kMiB;
      row.before_recording_peak = 680 * kMiB;
      row.category_peak.assign(format::kCategoryCount, 0);
      row.category_end.assign(format::kCategoryCount, 0);
      row.category_peak[static_cast<size_t>(format::Category::kActivation)] = base / 3;
      row.category_peak[static_cast<size_t>(format::Category::kOptimizerState)] = 32 * kMiB;
      row.category_end[static_cast<size_t>(format::Category::kOptimizerState)] = 32 * kMiB;
      iterations_.iterations.push_back(row);
    }
    iterations_.source = "optimizer steps";
  }

  void AddParameters(int layers) {
    for (int i = 0; i < layers; ++i) {
      const std::string layer = "h." + std::to_string(i) + ".fc";
      const uint64_t bytes = (static_cast<uint64_t>(i) + 1) * kMiB;
      const tables::ProcessId process{1};
      const tables::DeviceId device = iterations_.iterations.back().device;
      iterations_.parameters.push_back(
          {layer + ".weight", process, device, bytes, bytes, 2 * bytes});
      iterations_.parameters.push_back({layer + ".bias", process, device, 1024, 1024, 2048});
    }
  }

  std::string Text(size_t rows = 10) {
    return FormatIterations(iterations_, recording_, {.style = {.utf8 = true}, .rows = rows});
  }

  FakeRecording recording_;
  query::Iterations iterations_;
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
  EXPECT_NE(Text(0).find("\n       57 "), std::string::npos);
}

TEST_F(IterationsTest, SeveralDevicesAreApart) {
  AddIterations(2, 1, 0, 500 * kMiB);
  AddParameters(2);
  AddIterations(2, 0, 1, 90 * kMiB);
  iterations_.iterations.back().number = -1;
  const std::string text = Text();
  EXPECT_EQ(text, Expected("iterations_devices.txt", text));
}

TEST_F(IterationsTest, AParameterOfTheModelItselfIsInTheModelsLayer) {
  AddIterations(2, 1, 0, 500 * kMiB);
  const tables::DeviceId device = iterations_.iterations.back().device;
  for (const char* model : {"Linear", "MLP#2"}) {
    for (const char* name : {"weight", "bias"})
      iterations_.parameters.push_back({name, tables::ProcessId{1}, device, kMiB, 0, 0, model});
  }
  const std::string text = Text();
  EXPECT_NE(text.find("4 parameters of 2 layers"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  MLP#2 "), std::string::npos) << text;
}

TEST_F(IterationsTest, JsonAndCsv) {
  AddIterations(2, 1, 1, 500 * kMiB);
  AddParameters(1);
  const std::string json = IterationsJson(iterations_, recording_);
  EXPECT_EQ(json, Expected("iterations.json", json));
  const std::string csv = IterationsCsv(iterations_, recording_);
  EXPECT_EQ(csv, Expected("iterations.csv", csv));
}

query::Leaks SomeLeaks(FakeRecording& recording) {
  const tables::StackId main = recording.PythonStack({}, "main", "/home/u/train.py", 90);
  const tables::StackId step = recording.PythonStack(main, "step", "/home/u/train.py", 42);
  query::Leaks leaks;
  leaks.iterations = 40;
  leaks.warm_up = 4;
  leaks.bytes_per_iteration = 1.5 * static_cast<double>(kMiB);
  leaks.unexplained_per_iteration = 0.25 * static_cast<double>(kMiB) - 100.4;
  leaks.adopted = 1;
  leaks.growing = {
      {tables::DeviceId{1}, "train.py:42 in step", "model.h.[0-3] x4", "Block", "activation",
       1.25 * static_cast<double>(kMiB), 5 * kMiB, 50 * kMiB, 40, true, step},
      {tables::DeviceId{1}, "", "", "", "unknown", 100.4, 0, 4016, 3, false, {}}};
  leaks.never_freed = {{tables::DeviceId{2}, "train.py:90 in main", "", "", "temporary", 0, 0,
                        9 * kMiB, 2, false, main}};
  leaks.unused = {2, kMiB, "Net#[1,2] x2"};
  leaks.suppressed_bytes = 3 * kMiB;
  leaks.suppressed_count = 12;
  return leaks;
}

TEST_F(IterationsTest, Leaks) {
  const query::Leaks leaks = SomeLeaks(recording_);
  const std::string text = FormatLeaks(leaks, recording_, {.style = {.utf8 = true}});
  EXPECT_EQ(text, Expected("leaks.txt", text));
  ExpectWidth(text, 80);
  const std::string json = LeaksJson(leaks, recording_);
  EXPECT_EQ(json, Expected("leaks.json", json));
  const std::string csv = LeaksCsv(leaks, recording_);
  EXPECT_EQ(csv, Expected("leaks.csv", csv));
}

TEST_F(IterationsTest, SlightGrowthIsNoWarning) {
  query::Leaks leaks = SomeLeaks(recording_);
  LeaksTextOptions options;
  options.style.colour = true;
  EXPECT_THAT(FormatLeaks(leaks, recording_, options), testing::StartsWith("\x1b[33mMemory grows"));
  leaks.bytes_per_iteration = 512;
  EXPECT_THAT(FormatLeaks(leaks, recording_, options), testing::StartsWith("\x1b[1mMemory grows"));
}

TEST_F(IterationsTest, NoLeaks) {
  query::Leaks leaks;
  leaks.iterations = 6;
  leaks.warm_up = 2;
  EXPECT_EQ(FormatLeaks(leaks, recording_, {}),
            "Nothing grows over 6 iterations after 2 of warm-up.\n\n"
            "Never freed: nothing but models in use.\n");
  leaks.not_listed.assign(std::size(format::kAllCategories), 0);
  leaks.not_listed[static_cast<size_t>(format::Category::kWorkspace)] = 3 * kMiB;
  leaks.not_listed[static_cast<size_t>(format::Category::kParameter)] = 5 * kMiB;
  EXPECT_THAT(FormatLeaks(leaks, recording_, {}),
              testing::EndsWith("\nAlive at the end too, as expected: parameter 5.00 MiB, "
                                "workspace 3.00 MiB\n"));
  leaks.iterations = 5;
  leaks.too_few = true;
  EXPECT_EQ(FormatLeaks(leaks, recording_, {})
                .find("Too few iterations to tell: 5 (2 warm-up); 6 are needed.\n\n"),
            0u);
  EXPECT_FALSE(VerdictOf(leaks).good);
  leaks.iterations = 0;
  ExpectWidth(FormatLeaks(leaks, recording_, {}), 80);
  EXPECT_NE(FormatLeaks(leaks, recording_, {}).find("vramscope.mark(\"iteration\")"),
            std::string::npos);
  EXPECT_NE(FormatLeaks(SomeLeaks(recording_), recording_, {.top = 1}).find("(1 more: --top 0"),
            std::string::npos);
}

TEST_F(IterationsTest, OfASampledRecordingNothingIsSaidOfFrees) {
  recording_.edit().notes.push_back(
      {recording_.Intern(format::kModeNote), recording_.Intern(format::kSampledMode)});
  const std::string text = FormatLeaks({}, recording_, {});
  ExpectWidth(text, 80);
  EXPECT_EQ(text,
            "Sampled: allocations are unknown, so neither what grows nor what was never\n"
            "freed. `vramscope run` records them.\n");
}

}  // namespace
}  // namespace vramscope::output
