// SPDX-License-Identifier: Apache-2.0
// Growth over iterations and memory that was never freed, in trainings made by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>

#include "query/dimensions/report.h"
#include "query/results.h"
#include "query/testing/random_recording.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;
using format::Phase;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A process whose iteration k is (k * 100, k * 100 + 100].
class LeaksTest : public ::testing::Test {
 protected:
  LeaksTest() {
    const auto gpu = builder_.Device(tables::DeviceKind::kGpu, 0);
    process_ = builder_.Process(7, 1000);
    account_ = builder_.Account(process_, gpu);
  }
  void Iterations(int64_t count) {
    for (int64_t k = 0; k < count; ++k)
      builder_.tables.iterations.push_back({process_, k, k * 100, k * 100 + 100});
    builder_.tables.session.end_ns = count * 100 + 1;
    builder_.tables.processes[process_.value].exit_ns = count * 100 + 1;
    builder_.tables.processes[process_.value].end_ns = count * 100 + 1;
  }
  // As in a recording, equal texts are one.
  tables::StringId Text(const std::string& text) {
    if (text.empty())
      return {};
    const auto [known, added] = texts_.try_emplace(text);
    if (added)
      known->second = builder_.Text(text);
    return known->second;
  }
  tables::StackId Line(uint32_t line) {
    tables::FrameRow frame;
    frame.file = builder_.Text("train.py");
    frame.line = line;
    const tables::FrameId id{RecordingBuilder::Append(builder_.tables.frames, frame)};
    return tables::StackId{
        RecordingBuilder::Append(builder_.tables.stacks, {tables::StackId{}, id})};
  }
  // A layer's memory; `place` as of Line().
  tables::SiteId Site(Category category,
                      tables::StackId place,
                      const std::string& module = "",
                      const std::string& type = "",
                      const std::string& parameter = "") {
    tables::SiteRow site = builder_.SiteOf(account_, Part::kAllocated, category);
    site.place = place;
    site.module = Text(module);
    site.module_class = Text(type);
    site.parameter = Text(parameter);
    site.phase = category == Category::kActivation ? Phase::kForward
                 : category == Category::kGradient ? Phase::kBackward
                                                   : Phase::kOther;
    return builder_.Site(site);
  }
  Leaks Find(const LeakOptions& options = {}) {
    const auto recording = builder_.Make();
    auto leaks = MakeLeaks(*recording, options);
    EXPECT_TRUE(leaks.ok());
    return leaks.ok() ? *leaks : Leaks{};
  }

  RecordingBuilder builder_;
  std::map<std::string, tables::StringId> texts_;
  tables::ProcessId process_;
  tables::AccountId account_;
};

TEST_F(LeaksTest, GrowFromIterationToIteration) {
  Iterations(10);
  const auto leak = Site(Category::kUnknown, Line(42));
  const auto batch = Site(Category::kActivation, Line(7));
  builder_.Row(Site(Category::kWorkspace, Line(9)), 5, tables::kNever, 4096);
  for (int64_t k = 0; k < 10; ++k) {
    builder_.Row(leak, k * 100 + 10, tables::kNever, 1000);
    builder_.Row(batch, k * 100 + 20, k * 100 + 120, 70'000);
  }
  const Leaks leaks = Find();
  ASSERT_EQ(leaks.growing.size(), 1u);
  EXPECT_EQ(leaks.growing[0].place, "train.py:42");
  EXPECT_DOUBLE_EQ(leaks.growing[0].bytes_per_iteration, 1000);
  EXPECT_DOUBLE_EQ(leaks.bytes_per_iteration, 1000);
  EXPECT_NEAR(leaks.unexplained_per_iteration, 0, 1e-6);
  EXPECT_TRUE(leaks.growing[0].steady);
  EXPECT_EQ(leaks.growing[0].count, 10u);
  EXPECT_EQ(leaks.warm_up, 2);
  EXPECT_FALSE(leaks.too_few);
  EXPECT_EQ(leaks.growing[0].first_bytes, 3000u);
  ASSERT_EQ(leaks.never_freed.size(), 2u);
  EXPECT_EQ(leaks.never_freed[1].last_bytes, 10'000u);
  // With what is not listed it is all that the report has at the end.
  EXPECT_EQ(BytesOf(leaks.not_listed, Category::kWorkspace), 4096u);
  LeakOptions options;
  options.suppressions = {"train.py:42"};
  const Leaks fewer = Find(options);
  EXPECT_TRUE(fewer.growing.empty());
  EXPECT_DOUBLE_EQ(fewer.bytes_per_iteration, 0);
  EXPECT_EQ(fewer.suppressed_bytes, 10'000u);
  EXPECT_EQ(fewer.suppressed_count, 10u);
}

// As where the agent names some models of a line and rests while others are made.
TEST_F(LeaksTest, ALineWhoseMemoryHasAClassInPartIsOneRow) {
  Iterations(12);
  const auto line = Line(4);
  const auto named = Site(Category::kParameter, line, "Linear", "Linear");
  const auto late = Site(Category::kParameter, line, "param_groups.0");
  for (int64_t k = 0; k < 12; ++k)
    builder_.Row(k < 9 ? named : late, k * 100 + 10, tables::kNever, 1000);
  const Leaks leaks = Find();
  ASSERT_THAT(leaks.growing, SizeIs(1));
  EXPECT_DOUBLE_EQ(leaks.growing[0].bytes_per_iteration, 1000);
  EXPECT_EQ(leaks.growing[0].type, "Linear");
  EXPECT_EQ(leaks.growing[0].count, 12u);
  EXPECT_NEAR(leaks.unexplained_per_iteration, 0, 1e-6);
}

TEST_F(LeaksTest, FiveIterationsAreTooFew) {
  Iterations(5);
  const auto leak = Site(Category::kUnknown, Line(42));
  for (int64_t k = 0; k < 5; ++k)
    builder_.Row(leak, k * 100 + 10, tables::kNever, 1000);
  Leaks leaks = Find();
  EXPECT_TRUE(leaks.too_few);
  EXPECT_FALSE(leaks.IsJudged());
  EXPECT_EQ(leaks.warm_up, 2);
  builder_.tables.iterations.push_back({process_, 5, 500, 600});
  leaks = Find();
  EXPECT_TRUE(leaks.IsJudged());
}

// Adapters, folds, copies: a layer with another name in each iteration.
TEST_F(LeaksTest, GrowthUnderNewNamesIsAddedUp) {
  Iterations(40);
  const auto making = Line(6);
  const auto running = Line(8);
  for (int64_t k = 0; k < 40; ++k) {
    const std::string name = "adapters.task_" + std::to_string(k);
    builder_.Row(Site(Category::kParameter, making, name, "Linear", name + ".weight"), k * 100 + 10,
                 tables::kNever, 1'000'000);
    builder_.Row(Site(Category::kGradient, running, name, "Linear", name + ".weight"), k * 100 + 50,
                 tables::kNever, 1'000'000);
  }
  const Leaks leaks = Find();
  EXPECT_DOUBLE_EQ(leaks.bytes_per_iteration, 2'000'000);
  EXPECT_NEAR(leaks.unexplained_per_iteration, 0, 1e-6);
  ASSERT_THAT(leaks.growing, SizeIs(2));
  for (const Growth& growth : leaks.growing) {
    EXPECT_DOUBLE_EQ(growth.bytes_per_iteration, 1'000'000);
    EXPECT_TRUE(growth.steady);
    EXPECT_EQ(growth.module, "adapters.task_[5-39] x35");
    EXPECT_EQ(growth.type, "Linear");
  }
}

// Each step runs another layer, whose gradient stays until the next; the outputs are kept.
TEST_F(LeaksTest, TheTextIsAboutWhatGrowsAndNotAboutWhatIsThere) {
  Iterations(12);
  const auto line = Line(5);
  for (int64_t k = 0; k < 12; ++k) {
    const std::string name = std::to_string(k);
    builder_.Row(Site(Category::kActivation, line, name, "Linear"), k * 100 + 10, tables::kNever,
                 256);
    builder_.Row(Site(Category::kGradient, line, name, "Linear", name + ".weight"), k * 100 + 50,
                 k * 100 + 130, 10'000);
  }
  const Leaks leaks = Find();
  EXPECT_DOUBLE_EQ(leaks.bytes_per_iteration, 256);
  ASSERT_THAT(leaks.growing, SizeIs(1));
  EXPECT_EQ(leaks.growing[0].category, "activation");
  EXPECT_EQ(leaks.growing[0].module, "[3-11] x9");
}

// The last layer's gradient is one step, not growth; the outputs of one layer do grow.
TEST_F(LeaksTest, OneLayerAmongOthersThatVary) {
  Iterations(20);
  const auto line = Line(5);
  const auto kept = Site(Category::kActivation, line, "0", "Linear");
  const auto noise = Site(Category::kTemporary, line, "1", "Linear");
  const auto last = Site(Category::kTemporary, line, "2", "Linear");
  for (int64_t k = 0; k < 20; ++k) {
    builder_.Row(kept, k * 100 + 10, tables::kNever, 100);
    builder_.Row(noise, k * 100 + 50, k * 100 + 150, k % 2 == 0 ? 50'000 : 60'000);
  }
  builder_.Row(last, 1950, tables::kNever, 10);
  const Leaks leaks = Find();
  ASSERT_THAT(leaks.growing, SizeIs(1));
  EXPECT_EQ(leaks.growing[0].module, "0");
  EXPECT_DOUBLE_EQ(leaks.growing[0].bytes_per_iteration, 100);
  EXPECT_DOUBLE_EQ(leaks.bytes_per_iteration, 100);
}

TEST_F(LeaksTest, WhatNoLineExplainsIsSaid) {
  Iterations(20);
  for (uint32_t k = 0; k < 20; ++k)
    builder_.Row(Site(Category::kUnknown, Line(k)), k * 100 + 10, tables::kNever, 100);
  const Leaks leaks = Find();
  EXPECT_DOUBLE_EQ(leaks.bytes_per_iteration, 100);
  double rows = 0;
  for (const Growth& growth : leaks.growing)
    rows += growth.bytes_per_iteration;
  EXPECT_NEAR(leaks.unexplained_per_iteration, 100 - rows, 1e-6);
}

TEST_F(LeaksTest, AWorkerIsJudgedByTheIterationsOfItsParent) {
  Iterations(32);
  const auto worker = builder_.Process(8, 3201);
  builder_.tables.processes[worker.value].parent_pid = 7;
  builder_.tables.processes[worker.value].begin_ns = 250;
  account_ = builder_.Account(worker, tables::DeviceId{1});
  const auto kept = Site(Category::kTemporary, Line(9));
  for (int64_t k = 3; k < 32; ++k)
    builder_.Row(kept, k * 100 + 10, tables::kNever, 1 << 20);
  Leaks leaks = Find();
  EXPECT_EQ(leaks.adopted, 1u);
  ASSERT_THAT(leaks.growing, SizeIs(1));
  EXPECT_DOUBLE_EQ(leaks.bytes_per_iteration, 1 << 20);
  const auto is_judged = [&](int64_t until_ns) {
    builder_.tables.processes[worker.value].end_ns = until_ns;
    builder_.tables.accounts[account_.value].end_ns = until_ns;
    leaks = Find();
    EXPECT_EQ(leaks.Grows(), leaks.adopted == 1);
    return leaks.adopted == 1;
  };
  // Its end is unknown: it may wait since, ahead of its parent, unless it has waited for long or
  // its parent has begun another one.
  EXPECT_TRUE(is_judged(2750));
  EXPECT_FALSE(is_judged(2000));
  const auto next = builder_.Process(9, 3201);
  builder_.tables.processes[next.value].parent_pid = 7;
  builder_.tables.processes[next.value].begin_ns = 2800;
  EXPECT_FALSE(is_judged(2750));
  builder_.tables.processes[next.value].begin_ns = 200;
  EXPECT_TRUE(is_judged(2750));
  // A worker that ended has nothing any more.
  builder_.tables.processes[worker.value].end_ns = 2700;
  EXPECT_EQ(Find().adopted, 0u);
  builder_.tables.processes[worker.value].end_ns = 2750;
  builder_.tables.processes[worker.value].closed_cleanly = 1;
  EXPECT_EQ(Find().adopted, 0u);
}

// Ten models of a class one after the other, each kept with its gradient and optimizer state.
TEST_F(LeaksTest, ModelsThatNothingRunsAnyMoreAreListed) {
  const auto line = Line(4);
  for (int64_t k = 0; k < 10; ++k) {
    const std::string name = k == 0 ? "Linear" : "Linear#" + std::to_string(k + 1);
    const int64_t at = k * 100;
    builder_.Row(Site(Category::kParameter, line, name, "Linear", name + ".weight"), at + 10,
                 tables::kNever, 1000);
    builder_.Row(Site(Category::kActivation, line, name, "Linear"), at + 20, at + 30, 50);
    builder_.Row(Site(Category::kGradient, line, name, "Linear", name + ".weight"), at + 30,
                 tables::kNever, 1000);
    builder_.Row(Site(Category::kOptimizerState, line, name, "Linear", name + ".weight"), at + 40,
                 tables::kNever, 2000);
  }
  const Leaks leaks = Find();
  EXPECT_EQ(leaks.unused.count, 9u);
  EXPECT_EQ(leaks.unused.bytes, 9 * 4000u);
  EXPECT_EQ(leaks.unused.names, "Linear#[1-9] x9");
  ASSERT_THAT(leaks.never_freed, SizeIs(3));
  EXPECT_EQ(leaks.never_freed[0].category, "optimizer state");
  EXPECT_EQ(leaks.never_freed[0].module, "Linear#[1-9] x9");
  EXPECT_EQ(leaks.never_freed[0].last_bytes, 18'000u);
}

TEST_F(LeaksTest, WhichModelsAreInUse) {
  Iterations(20);
  const auto line = Line(4);
  const auto make = [&](const std::string& name, int64_t at_ns) {
    const std::string type = name.substr(0, name.find('#'));
    builder_.Row(Site(Category::kParameter, line, name, type, name + ".weight"), at_ns,
                 tables::kNever, 1000);
  };
  const auto run = [&](const std::string& name, int64_t from, int64_t until) {
    const auto site = Site(Category::kActivation, line, name, name.substr(0, name.find('#')));
    for (int64_t k = from; k < until; ++k)
      builder_.Row(site, k * 100 + 20, k * 100 + 30, 50);
  };
  // Two of a class that run in turn, an averaged copy that never does, and a model of the first
  // iterations alone.
  make("Net", 1);
  make("Net#2", 2);
  make("Net#3", 3);
  make("Warmup", 4);
  run("Net", 0, 20);
  run("Net#2", 0, 20);
  run("Warmup", 0, 5);
  Leaks leaks = Find();
  EXPECT_EQ(leaks.unused.names, "Warmup");
  // Copies that are made again and again, and never run: all but the newest.
  make("Net#4", 500);
  make("Net#5", 900);
  leaks = Find();
  EXPECT_EQ(leaks.unused.count, 3u);
  EXPECT_EQ(leaks.unused.bytes, 3000u);
}

// A model that trains, and a copy of it in each step that runs once.
TEST_F(LeaksTest, AModelThatRunsInTheLastIterationIsInUse) {
  Iterations(12);
  const auto line = Line(4);
  const auto make = [&](const std::string& name, int64_t at_ns) {
    builder_.Row(Site(Category::kParameter, line, name, "Net", name + ".weight"), at_ns,
                 tables::kNever, 1000);
  };
  make("Net", 1);
  for (int64_t k = 0; k < 12; ++k) {
    const std::string copy = "Net#" + std::to_string(k + 2);
    builder_.Row(Site(Category::kActivation, line, "Net", "Net"), k * 100 + 20, k * 100 + 30, 50);
    make(copy, k * 100 + 40);
    builder_.Row(Site(Category::kActivation, line, copy, "Net"), k * 100 + 50, k * 100 + 60, 50);
  }
  EXPECT_EQ(Find().unused.names, "Net#[2-12] x11");
}

// An average and a target, made before the training, that only the program's arithmetic uses.
TEST_F(LeaksTest, CopiesThatAreMadeAtOnceAreInUse) {
  Iterations(12);
  const auto line = Line(4);
  for (const std::string name : {"Net", "Net#2", "Net#3"})
    builder_.Row(Site(Category::kParameter, line, name, "Net", name + ".weight"), -20,
                 tables::kNever, 1000);
  for (int64_t k = 0; k < 12; ++k)
    builder_.Row(Site(Category::kActivation, line, "Net", "Net"), k * 100 + 20, k * 100 + 30, 50);
  EXPECT_EQ(Find().unused.count, 0u);
}

TEST_F(LeaksTest, AGradientWithoutANameIsListed) {
  const auto line = Line(4);
  builder_.Row(Site(Category::kGradient, line), 10, tables::kNever, 500);
  builder_.Row(Site(Category::kGradient, line, "0", "Linear", "0.weight"), 10, tables::kNever, 70);
  const Leaks leaks = Find();
  ASSERT_THAT(leaks.never_freed, SizeIs(1));
  EXPECT_EQ(leaks.never_freed[0].last_bytes, 500u);
}

}  // namespace
}  // namespace vramscope::query
