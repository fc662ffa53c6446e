// SPDX-License-Identifier: Apache-2.0
// Categories, phases, modules and names of what a training allocates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/testing/report_text.h"

namespace vramscope::engine {
namespace {

using format::NameKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using Rows = std::map<std::string, uint64_t>;
using Frames = std::vector<std::tuple<std::string, uint32_t, std::string, uint64_t>>;

const char kTrain[] = "/home/me/train.py";
const std::string kTorch = "/v/lib/python3.11/site-packages/torch/";
constexpr uint64_t kNet = 0x100;
constexpr uint64_t kFirst = 0x200;
constexpr uint64_t kSecond = 0x300;
constexpr uint64_t kSgd = 0x900;

// A model `Net` with two layers, trained by hand: each call of a method is what one line of a
// training program does to the stack.
class NamesTest : public ::testing::Test {
 protected:
  NamesTest() {
    trace_.AddCpu();
    trace_.AddProcess(4711);
    main_ = trace_.AddThread(1, "python");
    worker_ = trace_.AddThread(2, "autograd");
    trace_.OnThread(main_);
  }

  void AddNet() {
    trace_.Module(kNet, kNet, "", "Net");
    trace_.Module(kFirst, kNet, "first", "Linear");
    trace_.Module(kSecond, kNet, "second", "Linear");
  }
  Frames MainFrames(uint32_t line) { return {{kTrain, line, "main", 0}}; }
  void InMain(uint32_t line) { trace_.StackIs(trace_.PythonIn(MainFrames(line))); }
  static void Call(Frames& frames, uint64_t module, const char* file, uint32_t line) {
    frames.push_back({kTorch + "nn/modules/module.py", 1, "Module._wrapped_call_impl", module});
    frames.push_back({kTorch + "nn/modules/module.py", 2, "Module._call_impl", module});
    frames.push_back({file, line, "forward", module});
  }
  void InLayer(uint64_t layer, uint32_t line) {
    Frames frames = MainFrames(50);
    Call(frames, kNet, kTrain, line);
    Call(frames, layer, (kTorch + "nn/modules/linear.py").c_str(), 7);
    trace_.StackIs(trace_.PythonIn(frames));
  }
  static void CallBackward(Frames& frames) {
    frames.push_back({kTorch + "_tensor.py", 3, "Tensor.backward", 0});
    frames.push_back({kTorch + "autograd/__init__.py", 4, "backward", 0});
    frames.push_back({kTorch + "autograd/graph.py", 5, "_engine_run_backward", 0});
  }
  void InBackward() {
    Frames frames = MainFrames(60);
    CallBackward(frames);
    trace_.StackIs(trace_.PythonIn(frames));
  }
  static void CallStep(Frames& frames) {
    frames.push_back(
        {kTorch + "optim/optimizer.py", 1, "Optimizer.profile_hook_step.<locals>.wrapper", 0});
    frames.push_back({kTorch + "optim/sgd.py", 2, "SGD.step", 0});
  }
  void InStep() {
    Frames frames = MainFrames(70);
    CallStep(frames);
    trace_.StackIs(trace_.PythonIn(frames));
  }
  void Load() {
    Frames frames = MainFrames(40);
    frames.push_back({kTorch + "utils/data/dataloader.py", 1, "_BaseDataLoaderIter.__next__", 0});
    trace_.StackIs(trace_.PythonIn(frames));
  }

  Rows By(const std::string& by, const std::string& when = "end") {
    ReportQuery query = At(when);
    query.by = {*ParseDimension(by)};
    const Report report = ReportOf(trace_, query);
    EXPECT_EQ(BrokenInvariants(report), "");
    return RowBytes(report);
  }

  TraceBuilder trace_;
  trace::ThreadId main_;
  trace::ThreadId worker_;
};

TEST_F(NamesTest, OneIterationHasAllCategories) {
  AddNet();
  InMain(10);
  trace_.Alloc(0x1000, 1);
  trace_.Name(NameKind::kParameter, 0x1000, "first.weight", 0, kNet);
  Load();
  trace_.Alloc(0x2000, 2);
  InMain(45);
  trace_.Alloc(0x3000, 4);  // to(device)
  InLayer(kFirst, 20);
  trace_.Alloc(0x4000, 8);
  trace_.Alloc(0x5000, 16);
  trace_.Free(0x5000);
  InLayer(kSecond, 21);
  trace_.Alloc(0x6000, 32);
  InMain(55);
  trace_.Alloc(0x7000, 64);  // the loss
  trace_.At(1'000'000);
  InBackward();
  trace_.Alloc(0x8000, 128);
  trace_.Alloc(0x9000, 256);
  trace_.Mark("peak");
  trace_.Free(0x9000);
  trace_.Free(0x4000);
  trace_.Free(0x6000);
  InStep();
  trace_.StepBegin(kSgd);
  trace_.Alloc(0xa000, 512);
  trace_.Alloc(0xb000, 1024);
  trace_.Free(0xb000);
  trace_.Mark("step");
  trace_.StepEnd(kSgd);
  trace_.Free(0x8000);
  trace_.Free(0x7000);
  EXPECT_THAT(By("category", "mark:peak"),
              UnorderedElementsAre(Pair("parameter", 1), Pair("input", 6), Pair("activation", 104),
                                   Pair("gradient", 128), Pair("temporary", 256)));
  EXPECT_THAT(By("category", "mark:step"),
              UnorderedElementsAre(Pair("parameter", 1), Pair("input", 6), Pair("activation", 64),
                                   Pair("gradient", 128), Pair("optimizer state", 512)));
  EXPECT_THAT(By("phase", "mark:peak"),
              UnorderedElementsAre(Pair("other", 5), Pair("load", 2), Pair("forward", 104),
                                   Pair("backward", 384)));
  EXPECT_THAT(By("module", "mark:peak"),
              UnorderedElementsAre(Pair("first", 9), Pair("second", 32), Pair("(none)", 454)));
  ReportQuery query = At("mark:peak");
  EXPECT_EQ(RowBytes(ReportOf(trace_, query))["PyTorch / activation"], 104u);
}

}  // namespace
}  // namespace vramscope::engine
