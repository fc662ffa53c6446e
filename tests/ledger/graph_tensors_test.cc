// SPDX-License-Identifier: Apache-2.0
// Tensors that replayed CUDA graphs made in memory that PyTorch's allocator counts as free.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/training.h"

namespace vramscope::query {
namespace {

using format::NameKind;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr uint64_t kPool = uint64_t{0x7f} << 40;
constexpr uint64_t kOutput = kPool + 4 * kMiB;
constexpr uint64_t kGradient = kPool + 8 * kMiB;

class GraphTensorsTest : public TrainingTest {
 protected:
  GraphTensorsTest() {
    trace_.On(trace_.AddGpu());
    trace_.StepIs(50'000);
    AddNet();
    trace_.StackIs({}, trace_.Native({"/usr/bin/python3.11", "/venv/torch/lib/libc10_cuda.so"}));
    trace_.DriverAlloc(kPool, 20 * kMiB);
    trace_.Name(NameKind::kPrivatePool, kPool, "0.1");
    // The graph is recorded.
    InTheLayer();
    trace_.Alloc(kOutput, kMiB);
    InTheBackward();
    trace_.Alloc(kGradient, 2 * kMiB);
    trace_.Free(kOutput);
    trace_.StepBegin(kSgd);
    trace_.StepEnd(kSgd);
    trace_.Free(kGradient);
  }
  void Made(uint64_t address, uint64_t size) {
    trace_.Add(trace::GraphTensor{.address = address, .size = size, .stack = stack_});
  }
  void InTheLayer() {
    Frames frames = MainFrames(50);
    Call(frames, kNet, kTrain, 10);
    Call(frames, kFirst, (kTorch + "nn/modules/linear.py").c_str(), 7);
    trace_.StackIs(stack_ = trace_.PythonIn(frames));
  }
  void InTheBackward() {
    Frames frames = MainFrames(60);
    CallBackward(frames);
    trace_.StackIs(stack_ = trace_.PythonIn(frames));
  }
  void Gone(uint64_t address) { trace_.Add(trace::GraphTensor{.address = address}); }
  void Replay() {
    InTheLayer();
    Made(kOutput, kMiB - 100);
    trace_.Mark("forward");
    InTheBackward();
    Made(kGradient, 2 * kMiB - 4);
    Gone(kOutput);
    trace_.Mark("backward");
    trace_.StepBegin(kSgd);
    trace_.Name(NameKind::kGradient, kGradient, "first.weight", 2 * kMiB - 4, kNet);
    trace_.StepEnd(kSgd);
    trace_.Mark("step");
    Gone(kGradient);
    trace_.Mark("zero");
  }

  tables::StackId stack_;
};

TEST_F(GraphTensorsTest, TheyHaveTheCategoriesOfTensors) {
  Replay();
  Replay();
  EXPECT_THAT(By("category", "mark:forward"),
              UnorderedElementsAre(Pair("activation", kMiB), Pair("graph pool", 19 * kMiB)));
  for (const char* const when : {"mark:backward", "mark:step"}) {
    EXPECT_THAT(By("category", when),
                UnorderedElementsAre(Pair("gradient", 2 * kMiB - 4), Pair("rounding", 4),
                                     Pair("graph pool", 18 * kMiB)))
        << when;
  }
  EXPECT_THAT(By("category", "mark:zero"), UnorderedElementsAre(Pair("graph pool", 20 * kMiB)));
  EXPECT_EQ(By("module", "mark:step")["first"], 2 * kMiB);
  EXPECT_TRUE(ReportOf(trace_).losses.empty());
}

// A graph that is recorded later makes room for its own.
TEST_F(GraphTensorsTest, TheAllocatorsBlocksComeFirst) {
  InTheLayer();
  Made(kOutput, kMiB);
  Made(kGradient, kMiB);
  trace_.Alloc(kOutput, kMiB);  // the same tensor, now of the allocator
  Made(kOutput, kMiB);
  Gone(kOutput);
  trace_.Alloc(kGradient + 512, kMiB);
  EXPECT_EQ(By("category", "end")["graph pool"], 18 * kMiB);
  trace_.Free(kOutput);
  trace_.Free(kGradient + 512);
  Gone(kGradient);
  EXPECT_EQ(By("category", "end")["graph pool"], 20 * kMiB);
  EXPECT_TRUE(ReportOf(trace_).losses.empty());
}

}  // namespace
}  // namespace vramscope::query
