// SPDX-License-Identifier: Apache-2.0
// Phases of a training, and the categories that they and the lifetimes make.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/training.h"

namespace vramscope::query {
namespace {

using format::NameKind;
using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

using CategoriesTest = TrainingTest;

TEST_F(CategoriesTest, OneIterationHasAllCategories) {
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
  trace_.Name(NameKind::kGradient, 0x8000, "first.weight", 0, kNet);
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
  // Without names, memory of no phase can also be a parameter.
  trace_.NamesAreOff();
  EXPECT_THAT(
      By("category", "mark:peak"),
      UnorderedElementsAre(Pair("parameter", 1), Pair("input", 2), Pair("unknown", 4),
                           Pair("activation", 104), Pair("gradient", 128), Pair("temporary", 256)));
  EXPECT_THAT(By("module", "mark:peak"),
              UnorderedElementsAre(Pair("first", 137), Pair("second", 32), Pair("(none)", 326)));
  ReportQuery query = At("mark:peak");
  EXPECT_EQ(RowBytes(ReportOf(trace_, query))["PyTorch / activation"], 104u);
}

TEST_F(CategoriesTest, AThreadThatLoadsDataDoesNotEndABackward) {
  const tables::ThreadId loader = trace_.AddThread(3, "pin memory");
  InLayer(kFirst, 20);
  trace_.Alloc(0x1000, 1);
  InBackward();
  trace_.Alloc(0x2000, 2);
  trace_.OnThread(loader);
  trace_.StackIs(trace_.Python({{"/usr/lib/python3.11/threading.py", 1, "run"}}));
  trace_.Alloc(0x3000, 4);
  trace_.Mark("loaded");
  trace_.Free(0x2000);  // not alive when the backward is over
  trace_.OnThread(main_);
  InMain(70);
  trace_.Alloc(0x4000, 8);
  EXPECT_THAT(By("category", "mark:loaded"),
              UnorderedElementsAre(Pair("activation", 1), Pair("temporary", 2), Pair("input", 4)));
}

TEST_F(CategoriesTest, CheckpointsComputeAgainInTheBackward) {
  AddNet();
  InLayer(kFirst, 20);
  trace_.Alloc(0x1000, 1);
  Frames frames = MainFrames(60);
  CallBackward(frames);
  Call(frames, kSecond, kTrain, 21);
  trace_.StackIs(trace_.PythonIn(frames));
  trace_.InNode(7);
  trace_.Alloc(0x2000, 2);
  // The graph that it made, evaluated inside of the other.
  frames = MainFrames(60);
  CallBackward(frames);
  frames.push_back({kTorch + "utils/checkpoint.py", 9, "CheckpointFunction.backward", 0});
  CallBackward(frames);
  trace_.StackIs(trace_.PythonIn(frames));
  trace_.InNode(900);
  trace_.Alloc(0x3000, 4);
  trace_.Mark("backward");
  trace_.Free(0x2000);
  trace_.Free(0x3000);
  EXPECT_THAT(By("module", "mark:backward"),
              UnorderedElementsAre(Pair("first", 1), Pair("second", 6)));
  EXPECT_THAT(By("phase", "mark:backward"),
              UnorderedElementsAre(Pair("forward", 1), Pair("backward", 6)));
  EXPECT_THAT(By("category", "mark:backward"),
              UnorderedElementsAre(Pair("activation", 1), Pair("temporary", 6)));
}

TEST_F(CategoriesTest, AClosureOfAnOptimizerIsForwardAndBackward) {
  AddNet();
  InStep();
  trace_.StepBegin(kSgd);
  trace_.Alloc(0x1000, 1);  // alive at the end of the step
  Frames frames = MainFrames(70);
  CallStep(frames);
  frames.push_back({kTrain, 75, "closure", 0});
  Frames inner = frames;
  Call(inner, kFirst, kTrain, 20);
  trace_.StackIs(trace_.PythonIn(inner));
  trace_.NextNode(8);
  trace_.Alloc(0x2000, 2);
  trace_.StackIs(trace_.PythonIn(frames));
  trace_.NextNode(9);
  trace_.Alloc(0x3000, 4);  // the loss: no module, but it recorded a node
  inner = frames;
  CallBackward(inner);
  trace_.StackIs(trace_.PythonIn(inner));
  trace_.InNode(8);
  trace_.Alloc(0x4000, 8);
  trace_.NoNode();
  InStep();
  trace_.Alloc(0x5000, 16);
  trace_.Mark("step");
  trace_.Free(0x5000);
  trace_.Free(0x2000);
  trace_.StepEnd(kSgd);
  trace_.Free(0x1000);
  EXPECT_THAT(By("category", "mark:step"),
              UnorderedElementsAre(Pair("optimizer state", 1), Pair("activation", 6),
                                   Pair("gradient", 8), Pair("temporary", 16)));
  EXPECT_THAT(By("phase", "mark:step"),
              UnorderedElementsAre(Pair("optimizer", 17), Pair("forward", 6), Pair("backward", 8)));
}

TEST_F(CategoriesTest, AStepWithoutAnOptimizersFrameIsOneAllTheSame) {
  InMain(10);
  trace_.StepBegin(kSgd);
  trace_.Alloc(0x1000, 1);
  trace_.StepEnd(kSgd);
  trace_.Alloc(0x2000, 2);
  EXPECT_THAT(By("phase"), UnorderedElementsAre(Pair("optimizer", 1), Pair("other", 2)));
  // A step that an exception ended.
  trace_.StepBegin(kSgd);
  InLayer(kFirst, 20);
  trace_.Alloc(0x3000, 4);
  Load();
  trace_.Alloc(0x4000, 8);
  InMain(11);
  trace_.Alloc(0x5000, 16);
  EXPECT_THAT(By("phase"), UnorderedElementsAre(Pair("optimizer", 1), Pair("other", 18),
                                                Pair("forward", 4), Pair("load", 8)));
}

TEST_F(CategoriesTest, EvaluationWithoutABackward) {
  AddNet();
  for (int round = 0; round < 3; ++round) {
    Load();
    trace_.Alloc(0x1000, 1);
    InMain(45);
    trace_.Alloc(0x2000, 2);
    InLayer(kFirst, 20);
    trace_.Alloc(0x3000, 4);
    trace_.Mark("round");
    trace_.Free(0x1000);
    trace_.Free(0x2000);
    trace_.Free(0x3000);
  }
  InLayer(kFirst, 20);
  trace_.Alloc(0x4000, 8);  // never freed
  EXPECT_THAT(By("category", "mark:round"),
              UnorderedElementsAre(Pair("input", 1), Pair("temporary", 6)));
  EXPECT_THAT(By("category"), ElementsAre(Pair("retained", 8)));
}

TEST_F(CategoriesTest, SetUpIsNoForward) {
  Frames frames = MainFrames(5);
  frames.push_back({kTrain, 8, "Net.__init__", kNet});
  frames.push_back({kTorch + "nn/modules/linear.py", 90, "Linear.__init__", kFirst});
  trace_.StackIs(trace_.PythonIn(frames));
  trace_.Alloc(0x1000, 1);
  frames = MainFrames(6);
  frames.push_back({kTorch + "nn/modules/module.py", 900, "Module.to", kNet});
  frames.push_back({kTorch + "nn/modules/module.py", 800, "Module._apply", kNet});
  trace_.StackIs(trace_.PythonIn(frames));
  trace_.Alloc(0x2000, 2);
  InMain(7);
  trace_.Alloc(0x3000, 4);
  EXPECT_THAT(By("phase"), ElementsAre(Pair("other", 7)));
}

TEST_F(CategoriesTest, AUsersOwnFolderOfALikeNameIsNoOptimizer) {
  trace_.StackIs(trace_.Python({{"/home/me/optim/train.py", 1, "step"},
                                {"/home/me/utils/data/x.py", 1, "f"},
                                {"/home/me/autograd/__init__.py", 1, "backward"}}));
  trace_.Alloc(0x1000, 1);
  EXPECT_THAT(By("phase"), ElementsAre(Pair("other", 1)));
  EXPECT_THAT(By("category"), ElementsAre(Pair("unknown", 1)));
}

TEST_F(CategoriesTest, CommunicationIsWhatDistributedCodeAllocatesItself) {
  AddNet();
  constexpr uint64_t kDdp = 0x400;
  Frames frames = MainFrames(50);
  Call(frames, kDdp, (kTorch + "nn/parallel/distributed.py").c_str(), 1600);
  trace_.StackIs(trace_.PythonIn(frames));
  trace_.Alloc(0x1000, 1);
  // What it wraps, with nothing of the user's own in between.
  Call(frames, kFirst, (kTorch + "nn/modules/linear.py").c_str(), 7);
  trace_.StackIs(trace_.PythonIn(frames));
  trace_.Alloc(0x2000, 2);
  frames = MainFrames(51);
  frames.push_back({kTorch + "distributed/distributed_c10d.py", 1, "all_reduce", 0});
  trace_.StackIs(trace_.PythonIn(frames));
  trace_.Alloc(0x3000, 4);
  // Operators on distributed tensors compute.
  frames = MainFrames(52);
  frames.push_back({kTorch + "distributed/tensor/_dispatch.py", 1, "dispatch", 0});
  trace_.StackIs(trace_.PythonIn(frames));
  trace_.Alloc(0x4000, 8);
  EXPECT_THAT(By("category"), UnorderedElementsAre(Pair("communication", 5), Pair("retained", 10)));
}

TEST_F(CategoriesTest, CommunicationLeavesGradientsBehind) {
  Frames frames = MainFrames(60);
  CallBackward(frames);
  frames.push_back({kTorch + "distributed/fsdp/_fully_shard/_fsdp_param_group.py", 1, "post", 0});
  trace_.StackIs(trace_.PythonIn(frames));
  trace_.Alloc(0x1000, 1);  // all of it, gathered
  trace_.Alloc(0x2000, 2);  // this rank's part of the sum
  // A copy that the collective makes for itself, and which gloo's thread lets go late.
  frames.push_back({kTorch + "distributed/distributed_c10d.py", 1, "reduce_scatter_single", 0});
  trace_.StackIs(trace_.PythonIn(frames));
  trace_.Alloc(0x4000, 8);
  trace_.Mark("backward");
  trace_.Free(0x1000);
  InMain(61);
  trace_.Alloc(0x3000, 4);
  EXPECT_THAT(By("category", "mark:backward"),
              UnorderedElementsAre(Pair("communication", 9), Pair("gradient", 2)));
}

TEST_F(CategoriesTest, WithoutTrainingWhatIsKeptIsRetained) {
  Load();
  trace_.Alloc(0x1000, 1);
  InLayer(kFirst, 20);
  trace_.Alloc(0x2000, 2);
  trace_.Alloc(0x3000, 4);
  InMain(45);
  trace_.Alloc(0x4000, 8);
  trace_.Alloc(0x5000, 16);
  trace_.Mark("all");
  trace_.Free(0x3000);
  trace_.Free(0x5000);
  const Rows expected{{"input", 1}, {"retained", 10}, {"temporary", 20}};
  EXPECT_EQ(By("category", "mark:all"), expected) << "it was killed";
  // What Python's end frees the program has kept.
  trace_.Teardown();
  trace_.Free(0x2000);
  trace_.Free(0x4000);
  trace_.ProcessEnd();
  EXPECT_EQ(By("category", "mark:all"), expected) << "it ended";
}

TEST_F(CategoriesTest, WhatIsKeptAfterATrainingDoesNotDependOnItsEnd) {
  AddNet();
  InLayer(kFirst, 20);
  trace_.Alloc(0x1000, 1);
  InBackward();
  trace_.Alloc(0x2000, 2);
  InLayer(kFirst, 20);
  trace_.Alloc(0x3000, 4);
  trace_.Mark("all");
  const Rows expected{{"activation", 5}, {"gradient", 2}};
  EXPECT_EQ(By("category", "mark:all"), expected);
  trace_.Teardown();
  for (const uint64_t address : {0x1000u, 0x2000u, 0x3000u})
    trace_.Free(address);
  EXPECT_EQ(By("category", "mark:all"), expected);
}

TEST_F(CategoriesTest, AGradientIsWhatAParameterHasOrOneOfItsKind) {
  AddNet();
  InMain(10);
  trace_.Alloc(0x1000, 1);
  trace_.Name(NameKind::kParameter, 0x1000, "first.weight", 0, kNet);
  InBackward();
  trace_.Alloc(0x2000, 2);
  trace_.Alloc(0x3000, 4);  // a hook keeps it
  trace_.Alloc(0x4000, 8);
  InMain(45);
  trace_.Alloc(0x5000, 16);
  trace_.Name(NameKind::kGradient, 0x2000, "first.weight", 0, kNet);
  trace_.Free(0x2000);
  trace_.Free(0x4000);
  InBackward();
  trace_.Alloc(0x6000, 2);  // freed before anybody looked
  trace_.Alloc(0x7000, 32);
  trace_.Mark("backward");
  trace_.Free(0x7000);
  InMain(46);
  trace_.Alloc(0x8000, 64);
  trace_.Free(0x6000);
  EXPECT_THAT(By("category", "mark:backward"),
              UnorderedElementsAre(Pair("parameter", 1), Pair("input", 16), Pair("gradient", 2),
                                   Pair("retained", 4), Pair("temporary", 32)));
}

const std::string kVllm = "/v/lib/python3.12/site-packages/vllm/v1/worker/";

class EnginesTest : public TrainingTest {
 protected:
  void In(const std::vector<std::pair<std::string, std::string>>& functions) {
    Frames frames = MainFrames(10);
    for (const auto& [file, function] : functions)
      frames.emplace_back(file, 1, function, 0);
    trace_.StackIs(trace_.PythonIn(frames));
  }
};

TEST_F(EnginesTest, TheOutermostFunctionIsThePhaseAndTheInnermostTheCategory) {
  In({{kVllm + "gpu_worker.py", "Worker.determine_available_memory"},
      {kVllm + "gpu/model_runner.py", "GPUModelRunner.initialize_kv_cache"},
      {kVllm + "utils.py", "allocate_kv_cache"}});
  trace_.Alloc(0x1000, 1);
  In({{kVllm + "gpu_worker.py", "Worker.initialize_from_config"},
      {kVllm + "gpu/model_runner.py", "GPUModelRunner.initialize_kv_cache"}});
  trace_.Alloc(0x2000, 2);  // a buffer beside the cache
  // Files of other packages may have the same names.
  In({{"/home/me/my_vllm/v1/worker/gpu_worker.py", "Worker.load_model"}});
  trace_.OnThread(worker_);
  trace_.Alloc(0x3000, 4);
  trace_.Mark("all");
  EXPECT_THAT(By("phase", "mark:all"),
              UnorderedElementsAre(Pair("profile", 1), Pair("kv cache", 6)));
  EXPECT_THAT(By("category", "mark:all"),
              UnorderedElementsAre(Pair("kv cache", 1), Pair("retained", 6)));
}

TEST_F(EnginesTest, MarksReplaceFunctions) {
  In({{kVllm + "gpu_worker.py", "Worker.load_model"}});
  trace_.Alloc(0x1000, 1);
  trace_.Mark("phase:serve");
  trace_.Alloc(0x2000, 2);
  trace_.Mark("phase:rollout");  // of no list
  trace_.Alloc(0x3000, 4);
  trace_.Mark("all");
  EXPECT_THAT(By("phase", "mark:all"),
              UnorderedElementsAre(Pair("load", 1), Pair("serve", 2), Pair("other", 4)));
}

TEST_F(EnginesTest, PhasesWithoutEndAreCut) {
  constexpr uint32_t kListed = 1 << 16;
  for (uint32_t i = 0; i < kListed + 3; ++i)
    trace_.Mark(i % 2 == 0 ? "phase:serve" : "phase:load");
  trace_.Mark("all");
  const std::unique_ptr<tables::Recording> recording = Analyse(trace_);
  ASSERT_EQ(recording->tables().phases.size(), kListed);
  // The last one ends where the first that is not listed begins.
  EXPECT_LT(recording->tables().phases.back().end_ns, recording->tables().marks.back().time_ns);
  const Report report = ReportOf(trace_);
  ASSERT_EQ(report.losses.size(), 1u);
  EXPECT_EQ(report.losses[0].name, "phases of inference engines not listed");
  EXPECT_EQ(report.losses[0].count, 3u);
}

TEST_F(EnginesTest, ATrainerBesideAnEngineKeepsItsPhases) {
  AddNet();
  In({{kVllm + "gpu_worker.py", "Worker.execute_model"}});
  trace_.Alloc(0x1000, 1);
  InLayer(kFirst, 20);
  trace_.NextNode(1);
  trace_.Alloc(0x2000, 2);
  trace_.NextNode(2);
  trace_.Alloc(0x3000, 4);
  InBackward();
  trace_.Alloc(0x4000, 8);
  InLayer(kFirst, 20);
  trace_.Alloc(0x5000, 16);
  trace_.Mark("all");
  // Nothing shows yet that the first tensor is a training's.
  EXPECT_THAT(By("phase", "mark:all"),
              UnorderedElementsAre(Pair("serve", 3), Pair("forward", 20), Pair("backward", 8)));
}

TEST_F(EnginesTest, ACacheWithinATrainingsForwardIsAnActivation) {
  AddNet();
  const auto update = [&] {
    Frames frames = MainFrames(50);
    Call(frames, kNet, kTrain, 20);
    frames.emplace_back("/v/site-packages/transformers/cache_utils.py", 9, "DynamicLayer.update",
                        0);
    trace_.StackIs(trace_.PythonIn(frames));
  };
  update();
  trace_.Alloc(0x1000, 1);
  trace_.Alloc(0x2000, 2);
  trace_.Mark("forward");
  trace_.Free(0x2000);
  InBackward();
  trace_.Alloc(0x3000, 4);
  EXPECT_THAT(By("category", "mark:forward"),
              UnorderedElementsAre(Pair("activation", 1), Pair("kv cache", 2)));
}

TEST_F(EnginesTest, ATagAsEnginesWriteIt) {
  InMain(10);
  trace_.Alloc(0x1000, 1);
  trace_.Name(NameKind::kTag, 0x1000, "kv_cache");
  trace_.Mark("all");
  EXPECT_THAT(By("category", "mark:all"), UnorderedElementsAre(Pair("kv cache", 1)));
}

}  // namespace
}  // namespace vramscope::query
