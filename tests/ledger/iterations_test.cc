// SPDX-License-Identifier: Apache-2.0
// Iterations and leaks, on trainings made by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/report_text.h"
#include "ledger/training.h"
#include "tables/imported.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::NameKind;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Frames = std::vector<std::tuple<std::string, uint32_t, std::string, uint64_t>>;

constexpr uint64_t kAdam = 0x900;

uint64_t PeakOf(const Iteration& iteration, Category category) {
  return iteration.category_peak[static_cast<size_t>(category)];
}
uint64_t EndOf(const Iteration& iteration, Category category) {
  return iteration.category_end[static_cast<size_t>(category)];
}

class IterationsTest : public ::testing::Test {
 protected:
  IterationsTest() { Reset(); }

  void Reset() {
    trace_ = TraceBuilder();
    cpu_ = trace_.AddCpu();
    gpu_ = trace_.AddGpu();
    trace_.AddProcess(4711);
    trace_.AddProcess(4712);
    trace_.On(cpu_);
    trace_.OnThread(trace_.AddThread(1, "python"));
  }

  void In(Frames frames) {
    frames.insert(frames.begin(), {"/home/me/train.py", 50, "main", 0});
    trace_.StackIs(trace_.PythonIn(frames));
  }
  void InMain() { In({}); }
  void InForward() {
    In({{kTorch + "nn/modules/module.py", 1, "Module._wrapped_call_impl", kNet},
        {kTorch + "nn/modules/module.py", 2, "Module._call_impl", kNet},
        {"/home/me/train.py", 7, "forward", kNet}});
  }
  void InBackward() {
    In({{kTorch + "_tensor.py", 3, "Tensor.backward", 0},
        {kTorch + "autograd/__init__.py", 4, "backward", 0}});
  }
  void InStep() {
    In({{kTorch + "optim/optimizer.py", 1, "wrapper", 0},
        {kTorch + "optim/adam.py", 2, "step", 0}});
  }

  void AddModel(uint64_t base) {
    trace_.Module(kNet, kNet, "", "Net");
    InMain();
    trace_.Alloc(base + 0x1000, 1);
    trace_.Name(NameKind::kParameter, base + 0x1000, "fc.weight", 0, kNet);
  }

  // 1 of a parameter; 2 of activation, 4 of a gradient, 9 and 8 of what forward and backward free
  // again, and from the first step on 16 of state.
  void Train(uint64_t base, bool first, bool marked = false) {
    InForward();
    trace_.Alloc(base + 0x2000, 2);
    trace_.Alloc(base + 0x6000, 9);
    trace_.Free(base + 0x6000);
    InBackward();
    trace_.Alloc(base + 0x3000, 8);
    trace_.Alloc(base + 0x4000, 4);
    trace_.Name(NameKind::kGradient, base + 0x4000, "fc.weight", 0, kNet);
    trace_.Free(base + 0x3000);
    trace_.Free(base + 0x2000);
    if (!marked)
      trace_.StepBegin(kAdam + base);
    InStep();
    if (first) {
      trace_.Alloc(base + 0x5000, 16);
      trace_.Name(NameKind::kOptimizerState, base + 0x5000, "fc.weight", 0, kAdam)
          .As<trace::Name>()
          .detail = trace_.Text("exp_avg");
    }
    if (!marked)
      trace_.StepEnd(kAdam + base);
    InMain();
    trace_.Free(base + 0x4000);
    if (marked)
      trace_.Mark("iteration");
  }

  Iterations IterationsOf() {
    auto analysis = Analyse(trace_);
    auto iterations = MakeIterations(*analysis);
    EXPECT_TRUE(iterations.ok()) << iterations.status().message();
    return iterations.ok() ? *iterations : Iterations{};
  }

  TraceBuilder trace_;
  trace::DeviceId cpu_;
  trace::DeviceId gpu_;
};

TEST_F(IterationsTest, TheClassesThatSteppedAreNoted) {
  AddModel(0);
  for (int i = 0; i < 3; ++i)
    Train(0, i == 0);
  const auto analysis = Analyse(trace_);
  EXPECT_EQ(tables::NoteOf(*analysis, tables::kOptimizersNote), "SGD");
}

TEST_F(IterationsTest, EachHasItsPeaksAndItsEnd) {
  AddModel(0);
  for (int i = 0; i < 3; ++i)
    Train(0, i == 0);
  InForward();
  trace_.Alloc(0x7000, 1000);  // behind the last step: of no iteration
  const Iterations found = IterationsOf();
  EXPECT_EQ(found.source, "optimizer steps");
  ASSERT_THAT(found.iterations, SizeIs(3));
  const Iteration& first = found.iterations[0];
  const Iteration& last = found.iterations[2];
  EXPECT_EQ(first.number, 0);
  EXPECT_EQ(first.peak_bytes, 21u);  // in the step: parameter, gradient, state
  EXPECT_EQ(first.end_bytes, 21u);
  EXPECT_EQ(first.backward_temporary_peak, 8u);
  // The gradient of the first is freed in the second.
  EXPECT_EQ(last.peak_bytes, 31u);
  EXPECT_EQ(last.peak_allocated, 31u);
  EXPECT_EQ(last.peak_reserved, 0u);  // no caching allocator on the CPU
  EXPECT_EQ(last.end_bytes, 21u);
  EXPECT_EQ(last.begin_ns, found.iterations[1].end_ns);
  EXPECT_GT(last.peak_ns, last.begin_ns);
  EXPECT_LE(last.peak_ns, last.end_ns);
  EXPECT_EQ(PeakOf(last, Category::kActivation), 2u);
  EXPECT_EQ(EndOf(last, Category::kActivation), 0u);
  EXPECT_EQ(PeakOf(last, Category::kGradient), 4u);
  EXPECT_EQ(PeakOf(last, Category::kTemporary), 9u);
  EXPECT_EQ(last.backward_temporary_peak, 8u);
  EXPECT_EQ(EndOf(last, Category::kOptimizerState), 16u);
  EXPECT_EQ(PeakOf(first, Category::kParameter), 1u);

  ASSERT_THAT(found.parameters, SizeIs(1));
  EXPECT_EQ(found.parameters[0].name, "fc.weight");
  EXPECT_EQ(found.parameters[0].module, "fc");
  EXPECT_EQ(found.parameters[0].parameter, 1u);
  EXPECT_EQ(found.parameters[0].gradient, 4u);
  EXPECT_EQ(found.parameters[0].optimizer_state, 16u);
}

TEST_F(IterationsTest, MarksEndThemWhereThereAreSome) {
  AddModel(0);
  Train(0, true, true);
  Train(0, false, true);
  const Iterations found = IterationsOf();
  EXPECT_EQ(found.source, "marks");
  ASSERT_THAT(found.iterations, SizeIs(2));
  EXPECT_EQ(found.iterations[1].peak_bytes, 31u);
  EXPECT_EQ(found.iterations[1].end_bytes, 17u);
  // Its life ended before the mark, and counts all the same.
  EXPECT_EQ(found.parameters[0].gradient, 4u);
}

TEST_F(IterationsTest, TheEndOfTheProcessIsBehindAMarkOfTheSameInstant) {
  AddModel(0);
  trace_.StepIs(0);
  trace_.Mark("iteration");
  trace_.ProcessEnd();
  const Iterations found = IterationsOf();
  ASSERT_THAT(found.iterations, SizeIs(1));
  EXPECT_EQ(found.iterations[0].end_bytes, 1u);
}

TEST_F(IterationsTest, ProcessesOnOneDeviceAreApart) {
  AddModel(0);
  trace_.In(trace::ProcessId{1});
  AddModel(0x10000);
  for (int i = 0; i < 2; ++i) {
    trace_.In(trace::ProcessId{0});
    Train(0, i == 0);
    trace_.In(trace::ProcessId{1});
    Train(0x10000, i == 0);
    trace_.Alloc(0x20000 + static_cast<uint64_t>(i) * 0x1000, 100);
  }
  const Iterations found = IterationsOf();
  ASSERT_THAT(found.iterations, SizeIs(4));
  EXPECT_EQ(found.iterations[1].process, tables::ProcessId{1});
  EXPECT_EQ(found.iterations[1].peak_bytes, 31u);
  EXPECT_EQ(found.iterations[3].process, tables::ProcessId{2});
  EXPECT_EQ(found.iterations[3].peak_bytes, 131u);
  EXPECT_THAT(found.parameters, SizeIs(2));
}

TEST_F(IterationsTest, ReservedIsWhatTheAllocatorHolds) {
  trace_.On(gpu_);
  InMain();
  trace_.Reading(10 * kMiB);
  trace_.ContextCreate(1);
  trace_.Reading(510 * kMiB);
  trace_.StackIs({}, trace_.Native({"/usr/bin/python3", "/v/torch/lib/libc10_cuda.so"}));
  trace_.DriverAlloc(0x7000'0000, 20 * kMiB);
  trace_.Alloc(0x7000'0000, 3 * kMiB);
  trace_.Alloc(0x7000'0000 + 4 * kMiB, 2 * kMiB);
  trace_.Free(0x7000'0000 + 4 * kMiB);
  trace_.Mark("iteration");
  trace_.Free(0x7000'0000);
  trace_.Mark("iteration of another kind");
  trace_.Mark("iterations");
  const Iterations found = IterationsOf();
  ASSERT_THAT(found.iterations, SizeIs(2));
  EXPECT_EQ(found.iterations[0].peak_allocated, 5 * kMiB);
  EXPECT_EQ(found.iterations[0].end_allocated, 3 * kMiB);
  EXPECT_EQ(found.iterations[0].peak_reserved, 20 * kMiB);
  EXPECT_EQ(EndOf(found.iterations[0], Category::kDriver), 500 * kMiB);
  EXPECT_EQ(found.iterations[0].peak_bytes, 520 * kMiB);
  EXPECT_EQ(found.iterations[1].peak_allocated, 3 * kMiB);
  EXPECT_EQ(found.iterations[1].end_allocated, 0u);
  EXPECT_EQ(found.iterations[1].end_reserved, 20 * kMiB);
  EXPECT_EQ(EndOf(found.iterations[1], Category::kCached), 20 * kMiB);
}

TEST_F(IterationsTest, XlasMainProgramMakesIterations) {
  trace_.On(gpu_);
  uint64_t next = 0x1000;
  const auto execute = [&](const char* name, uint64_t bytes, uint64_t temporary) {
    using Kind = format::XlaBlockKind;
    const tables::StringId program = trace_.Text(name);
    int64_t recorded_ns = 0;  // of both results
    for (int i = 0; i < 2; ++i, next += 0x1000) {
      trace::Event& event = trace_.Add(trace::XlaBlock{.address = next,
                                                       .size = bytes,
                                                       .requested = bytes,
                                                       .kind = Kind::kOutput,
                                                       .name = program});
      event.begin_ns = recorded_ns = i == 0 ? event.begin_ns : recorded_ns;
    }
    trace_.Add(trace::XlaBlock{.address = next,
                               .size = temporary,
                               .requested = temporary,
                               .kind = Kind::kTemporary,
                               .name = program});
    trace_.Free(next);
    next += 0x1000;
  };
  execute("jit_init", 100, 1);
  for (uint64_t i = 0; i < 4; ++i) {
    execute("jit_step", 50, 10 + i);
    execute("jit_full", 1, 1);
  }
  trace_.At(1'000'000'000);
  execute("jit_eval", 1000, 7);
  const Iterations found = IterationsOf();
  EXPECT_EQ(found.source, "executions of XLA's main program");
  ASSERT_THAT(found.iterations, SizeIs(4));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(found.iterations[i].end_bytes, 200 + (i + 1) * 102) << i;
    EXPECT_EQ(found.iterations[i].peak_bytes, found.iterations[i].end_bytes + 8 + i) << i;
  }
}

TEST_F(IterationsTest, ExecutionsGoOnWhereARingBegins) {
  trace_.On(gpu_);
  const tables::StringId step = trace_.Text("jit_step");
  const auto execute = [&](uint64_t number) {
    trace_.Add(trace::XlaBlock{.address = 0x1000 * number,
                               .size = 10,
                               .requested = 10,
                               .kind = format::XlaBlockKind::kOutput,
                               .name = step});
  };
  // Kept, because it lives on; a hundred others are not.
  execute(1);
  execute(2);
  trace_.Add(trace::Past{.iterations = 100});
  for (uint64_t i = 3; i < 7; ++i)
    execute(i);
  const Iterations found = IterationsOf();
  ASSERT_THAT(found.iterations, SizeIs(5));
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(found.iterations[i].number, static_cast<int64_t>(100 + i));
    EXPECT_EQ(found.iterations[i].end_bytes, 10 * (i + 2)) << i;
  }
}

TEST_F(IterationsTest, WithoutIterationsItSaysWhatMakesThem) {
  trace_.Alloc(0x1000, 1);
  auto analysis = Analyse(trace_);
  const auto iterations = MakeIterations(*analysis);
  ASSERT_FALSE(iterations.ok());
  EXPECT_THAT(iterations.status().message(), HasSubstr("vramscope.mark(\"iteration\")"));
  const auto leaks = MakeLeaks(*analysis, {});
  ASSERT_TRUE(leaks.ok());
  EXPECT_EQ(leaks->iterations, 0);
  EXPECT_THAT(leaks->growing, IsEmpty());
  EXPECT_THAT(leaks->never_freed, SizeIs(1));
}

class LeaksTest : public IterationsTest {
 protected:
  // `work` of each iteration comes between forward and mark; it has addresses of its own.
  template <class Work>
  Leaks LeaksOf(int iterations, Work work, LeakOptions options = {}) {
    AddModel(0);
    for (int i = 0; i < iterations; ++i) {
      Train(0, i == 0, true);
      // Before the mark of the next iteration.
      work(i, 0x100000 + static_cast<uint64_t>(i) * 0x100);
    }
    trace_.Mark("iteration");
    auto leaks = MakeLeaks(*Analyse(trace_), options);
    EXPECT_TRUE(leaks.ok());
    return leaks.ok() ? *leaks : Leaks{};
  }
  void InLine(uint32_t line) { In({{"/home/me/train.py", line, "keep", 0}}); }
};

TEST_F(LeaksTest, WhatEachIterationKeepsGrows) {
  const Leaks leaks = LeaksOf(20, [&](int, uint64_t at) {
    InLine(90);
    trace_.Alloc(at, 10);
    InForward();
    trace_.Alloc(at + 16, 5);
  });
  EXPECT_EQ(leaks.iterations, 21);
  EXPECT_EQ(leaks.warm_up, 2);
  ASSERT_THAT(leaks.growing, SizeIs(2));
  EXPECT_EQ(leaks.growing[0].place, "train.py:90 in keep");
  EXPECT_DOUBLE_EQ(leaks.growing[0].bytes_per_iteration, 10);
  EXPECT_EQ(leaks.growing[0].first_bytes, 20u);
  EXPECT_EQ(leaks.growing[0].last_bytes, 200u);
  EXPECT_EQ(leaks.growing[0].count, 20u);
  EXPECT_TRUE(leaks.growing[0].steady);
  EXPECT_EQ(leaks.growing[1].module, "Net");
  EXPECT_EQ(leaks.growing[1].place, "train.py:7 in forward");
  ASSERT_THAT(leaks.never_freed, SizeIs(2));
  EXPECT_EQ(leaks.never_freed[0].last_bytes, 200u);
}

TEST_F(LeaksTest, APlainTrainingDoesNotGrow) {
  uint64_t previous = 0;
  const Leaks leaks = LeaksOf(20, [&](int i, uint64_t at) {
    // The batch of the iteration before, of another size each time.
    InLine(91);
    trace_.Alloc(at, 10 + static_cast<uint64_t>(i * 7 % 5));
    if (previous != 0)
      trace_.Free(previous);
    previous = at;
  });
  EXPECT_THAT(leaks.growing, IsEmpty());
}

TEST_F(LeaksTest, ACacheThatIsFullDoesNotGrow) {
  const Leaks leaks = LeaksOf(40, [&](int i, uint64_t at) {
    InLine(92);
    if (i < 25)
      trace_.Alloc(at, 10);
  });
  EXPECT_THAT(leaks.growing, IsEmpty());
  EXPECT_THAT(leaks.never_freed, SizeIs(1));
}

TEST_F(LeaksTest, GrowthInStepsIsNotSteady) {
  const Leaks leaks = LeaksOf(40, [&](int i, uint64_t at) {
    InLine(93);
    if (i % 5 == 0)
      trace_.Alloc(at, 50);
  });
  ASSERT_THAT(leaks.growing, SizeIs(1));
  EXPECT_FALSE(leaks.growing[0].steady);
  EXPECT_NEAR(leaks.growing[0].bytes_per_iteration, 10, 0.5);
}

TEST_F(LeaksTest, SuppressionsByPlaceLayerAndFrame) {
  for (const char* pattern : {"train.py:90", "in keep", "train.py:50 in main"}) {
    Reset();
    const Leaks leaks = LeaksOf(20,
                                [&](int, uint64_t at) {
                                  InLine(90);
                                  trace_.Alloc(at, 10);
                                },
                                {.suppressions = {"nothing", pattern}});
    EXPECT_THAT(leaks.growing, IsEmpty()) << pattern;
    EXPECT_THAT(leaks.never_freed, IsEmpty()) << pattern;
    EXPECT_EQ(leaks.suppressed_bytes, 200u);
    EXPECT_EQ(leaks.suppressed_count, 20u);
  }
  Reset();
  const Leaks by_layer = LeaksOf(20,
                                 [&](int, uint64_t at) {
                                   InForward();
                                   trace_.Alloc(at, 10);
                                 },
                                 {.suppressions = {"Net"}});
  EXPECT_THAT(by_layer.growing, IsEmpty());
}

TEST_F(LeaksTest, TheLimitKeepsTheLargest) {
  const Leaks leaks = LeaksOf(20,
                              [&](int, uint64_t at) {
                                InLine(1);
                                trace_.Alloc(at, 1);
                                InLine(2);
                                trace_.Alloc(at + 16, 2);
                              },
                              {.limit = 1});
  ASSERT_THAT(leaks.growing, SizeIs(1));
  EXPECT_EQ(leaks.growing[0].place, "train.py:2 in keep");
}

}  // namespace
}  // namespace vramscope::query
