// SPDX-License-Identifier: Apache-2.0
#include "top/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "util/text.h"

namespace vramscope::cli {
namespace {

constexpr uint64_t kGib = uint64_t{1} << 30;

TopModel Model() {
  TopModel model;
  model.now_ns = 10'000'000'000;
  model.gpus = {{0, "GPU-a", "NVIDIA H100 80GB HBM3", 80 * kGib, 60 * kGib},
                {1, "GPU-b", "NVIDIA H100 80GB HBM3", 80 * kGib, std::nullopt}};
  auto details = std::make_shared<TopDetails>();
  details->recording = "/home/ann/train.vram.d";
  details->read_ns = 7'000'000'000;
  details->bytes = 40 * kGib;
  details->peak_bytes = 50 * kGib;
  details->categories = {{"activation", 30 * kGib, 1048576.0}, {"parameter", 10 * kGib, {}}};
  details->lines = {{{}, "train.py:42 in forward", "return self.layers(x)", 30 * kGib, 12}};
  model.processes = {
      {10, "ann", "python train.py --batch 64", "0", 41 * kGib, details, 1048576.0, false},
      {9, "bob-of-the-long-name", std::string(300, 'x'), "0", 19 * kGib, nullptr, {}, true}};
  return model;
}

std::vector<std::string> Screen(const TopView& view, int columns, const TopModel& model = Model()) {
  output::Style style;
  style.columns = columns;
  style.utf8 = true;
  return TopScreen(model, view, style);
}

bool Has(const std::vector<std::string>& lines, const std::string& text) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(text) != line.npos; });
}

TEST(TopScreen, NoLineIsWiderThanTheTerminal) {
  for (const int columns : {80, 119, 120, 160}) {
    for (const size_t rows : {size_t{0}, size_t{8}, size_t{24}, size_t{60}}) {
      for (const bool other : {false, true}) {
        const TopView view{.selected = {10, "0"}, .detail = other, .help = false, .rows = rows};
        const std::vector<std::string> lines = Screen(view, columns);
        for (const std::string& line : lines)
          EXPECT_LE(util::DisplayWidth(line), static_cast<size_t>(columns)) << line;
        EXPECT_TRUE(rows == 0 || lines.size() == rows) << lines.size();
      }
    }
  }
}

TEST(TopScreen, ShowsGpusProcessesAndTheSelectedOne) {
  const TopView view{.selected = {10, "0"}, .rows = 24};
  for (const int columns : {80, 160}) {
    const std::vector<std::string> lines = Screen(view, columns);
    EXPECT_TRUE(Has(lines, "60.0 GiB /   80.0 GiB  75.0 %"));
    EXPECT_TRUE(Has(lines, "no figure"));
    EXPECT_TRUE(Has(lines, ">      10 ann      0      41.0 GiB   +1.00 MiB yes python train.py"));
    EXPECT_TRUE(Has(lines, "        9 bob-of-… 0      19.0 GiB       ended "));
    EXPECT_TRUE(Has(lines, "train.vram.d: 40.0 GiB on GPU 0, read 3 s ago, peak 50.0 GiB"));
    EXPECT_TRUE(Has(lines, "activation"));
    EXPECT_TRUE(Has(lines, "train.py:42 in forward"));
    EXPECT_TRUE(Has(lines, "q quit"));
  }
}

TEST(TopScreen, TheSelectedProcessIsAlwaysVisible) {
  TopModel model = Model();
  for (uint32_t pid = 100; pid < 200; ++pid)
    model.processes.push_back({pid, "ann", "python", "1", kGib, nullptr, {}, false});
  const auto lines = Screen({.selected = {199, "1"}, .rows = 24}, 80, model);
  EXPECT_TRUE(Has(lines, ">     199"));
  EXPECT_FALSE(Has(lines, "train.py --batch"));
}

TEST(TopScreen, PlainTextHasEverything) {
  const std::vector<std::string> lines = Screen({}, 80);
  EXPECT_TRUE(Has(lines, "parameter"));
  EXPECT_FALSE(Has(lines, "q quit"));
  EXPECT_FALSE(Has(lines, ">"));
}

TEST(TopScreen, SaysThatNvmlIsNotThere) {
  TopModel model;
  model.no_nvml = "libnvidia-ml.so.1 is not installed";
  const std::vector<std::string> lines = Screen({}, 80, model);
  EXPECT_TRUE(Has(lines, "No NVML: libnvidia-ml.so.1 is not installed"));
  EXPECT_TRUE(Has(lines, "No process has memory on a GPU, and none is recorded."));
}

TEST(SortProcesses, SortsByEachKey) {
  std::vector<TopProcess> processes(3);
  for (uint32_t i = 0; i < 3; ++i) {
    processes[i].pid = i;
    processes[i].nvml_bytes = i == 1 ? 10 : 5;
    processes[i].command = std::string(1, static_cast<char>('c' - i));
  }
  processes[2].growth = -1;
  const auto order = [&](TopOrder by) {
    SortProcesses(by, &processes);
    std::string pids;
    for (const TopProcess& process : processes)
      pids += std::to_string(process.pid);
    return pids;
  };
  EXPECT_EQ(order(TopOrder::kBytes), "102");
  EXPECT_EQ(order(TopOrder::kGrowth), "210");
  EXPECT_EQ(order(TopOrder::kPid), "012");
  EXPECT_EQ(order(TopOrder::kName), "210");
}

}  // namespace
}  // namespace vramscope::cli
