// SPDX-License-Identifier: Apache-2.0
// Modules, parameters, lines and scopes of what a training allocates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/units.h"
#include "ledger/training.h"

namespace vramscope::query {
namespace {

using format::NameKind;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

using NamesTest = TrainingTest;

TEST_F(NamesTest, BackwardBelongsToTheForwardOperatorOfItsNode) {
  AddNet();
  trace_.NextNode(10);
  InMain(40);
  trace_.Alloc(0x1000, 1);
  InLayer(kFirst, 20);
  trace_.NextNode(11);
  trace_.Alloc(0x2000, 2);  // of node 10
  InLayer(kSecond, 21);
  trace_.NextNode(14);  // 11 and 12 allocated nothing
  trace_.Alloc(0x3000, 4);
  InMain(55);
  trace_.NextNode(15);
  trace_.Alloc(0x4000, 8);
  // On a thread of autograd's own, without Python.
  trace_.OnThread(worker_);
  trace_.StackIs({});
  trace_.InNode(14);
  trace_.Alloc(0x5000, 16);
  trace_.InNode(13);
  trace_.Alloc(0x6000, 32);
  trace_.InNode(12);  // unowned: allocated before it
  trace_.Alloc(0x7000, 64);
  trace_.InNode(10);
  trace_.Alloc(0x8000, 128);
  trace_.NoNode();  // a sum of two gradients
  trace_.Alloc(0x9000, 256);
  EXPECT_THAT(By("module"), UnorderedElementsAre(Pair("(none)", 1 + 8 + 16), Pair("second", 4 + 32),
                                                 Pair("first", 2 + 64 + 128 + 256)));
  EXPECT_THAT(By("phase"), UnorderedElementsAre(Pair("other", 1), Pair("forward", 14),
                                                Pair("backward", 16 + 32 + 64 + 128 + 256)));
  EXPECT_THAT(By("line"),
              UnorderedElementsAre(Pair("train.py:40 in main", 1), Pair("train.py:55 in main", 8),
                                   Pair("train.py:55 in backward of main", 16),
                                   Pair("train.py:20 in forward", 2),
                                   Pair("train.py:20 in backward of forward", 64 + 128 + 256),
                                   Pair("train.py:21 in forward", 4),
                                   Pair("train.py:21 in backward of forward", 32)));
  const Report report = ReportOf(trace_, At("end"));
  ASSERT_FALSE(report.top_lines.empty());
  EXPECT_EQ(report.top_lines[0].place, "train.py:20 in backward of forward");
  EXPECT_EQ(report.top_lines[0].bytes, 448u);
  ASSERT_FALSE(report.top_churn.empty());
  EXPECT_EQ(report.top_churn[0].place, "train.py:20 in backward of forward");
}

// torch.compile: its module has the model's name, what it generates has none, and a backward
// belongs to the forward.
TEST_F(NamesTest, CompiledCodeBelongsToTheModelThatWasCompiled) {
  constexpr uint64_t kCompiled = 0x400;
  constexpr uint64_t kGraph = 0x500;
  AddNet();
  trace_.Module(kCompiled, kNet, "", "OptimizedModule");
  Frames frames = MainFrames(50);
  Call(frames, kCompiled, kTrain, 50);
  frames.push_back({"<eval_with_key>.5", 9, "forward", kGraph});
  trace_.StackIs(trace_.PythonIn(frames));
  trace_.NextNode(5);
  trace_.Alloc(0x1000, 1);
  frames = MainFrames(60);
  CallBackward(frames);
  frames.push_back({"<eval_with_key>.6", 9, "forward", kGraph});
  trace_.StackIs(trace_.PythonIn(frames));
  trace_.InNode(4);
  trace_.Alloc(0x2000, 2);
  EXPECT_THAT(By("module"), ElementsAre(Pair("Net", 3)));
  EXPECT_THAT(By("line"), UnorderedElementsAre(Pair("train.py:50 in forward", 1),
                                               Pair("train.py:50 in backward of forward", 2)));
  EXPECT_EQ(ReportOf(trace_).top_modules[0].type, "Net");
}

// What is free in a segment, too: not an address in the CUDA runtime, which called the driver.
TEST_F(NamesTest, ASegmentThatAutogradsThreadMadeComesFromTheForwardOfItsFirstBlock) {
  AddNet();
  trace_.On(trace_.AddGpu());
  const tables::StackId runtime = trace_.Native({"libtorch_cuda.so", "libcudart.so.13"});
  // The purpose is unknown: only the native stack exists.
  trace_.StackIs({}, runtime);
  trace_.DriverAlloc(kBase + 128 * kMiB, 2 * kMiB);
  trace_.Alloc(kBase + 128 * kMiB, kMiB);
  trace_.Free(kBase + 128 * kMiB);
  InLayer(kFirst, 20);
  trace_.NextNode(11);
  trace_.DriverAlloc(kBase, 20 * kMiB);
  trace_.Alloc(kBase, 8 * kMiB);
  trace_.OnThread(worker_);
  trace_.StackIs({}, runtime);
  trace_.DriverAlloc(kBase + 64 * kMiB, 40 * kMiB);
  trace_.StackIs({});
  trace_.InNode(10);
  trace_.Alloc(kBase + 64 * kMiB, 16 * kMiB);
  trace_.Free(kBase + 64 * kMiB);
  Rows free;
  for (const TopLine& entry : ReportOf(trace_, At("end")).free_lines)
    free[entry.place] = entry.bytes;
  EXPECT_EQ(free["train.py:20 in forward"], 12 * kMiB);
  EXPECT_EQ(free["train.py:20 in backward of forward"], 40 * kMiB);
  EXPECT_EQ(free["f (libcudart.so.13)"], 2 * kMiB);
}

TEST_F(NamesTest, BackwardOnTheCallingThreadShowsTheForwardLineAndItsOwnStack) {
  AddNet();
  InLayer(kFirst, 20);
  trace_.NextNode(5);
  trace_.Alloc(0x1000, 1);
  InBackward();
  trace_.InNode(4);
  trace_.Alloc(0x2000, 2);
  // A hook of the user's own says more than the forward's line.
  Frames frames = MainFrames(60);
  CallBackward(frames);
  frames.push_back({kTrain, 99, "hook", 0});
  trace_.StackIs(trace_.PythonIn(frames));
  trace_.Alloc(0x3000, 4);
  EXPECT_THAT(By("line"), UnorderedElementsAre(Pair("train.py:20 in forward", 1),
                                               Pair("train.py:20 in backward of forward", 2),
                                               Pair("train.py:99 in hook", 4)));
  EXPECT_THAT(By("module"), ElementsAre(Pair("first", 7)));
  const Rows python = By("python");
  EXPECT_EQ(python.size(), 3u);
  EXPECT_THAT(python, Contains(Pair(HasSubstr("_engine_run_backward"), 2)));
}

TEST_F(NamesTest, TheThreadThatUsedANumberLastHasIt) {
  AddNet();
  InLayer(kFirst, 20);
  trace_.NextNode(5);
  trace_.Alloc(0x1000, 1);
  const tables::ThreadId other = trace_.AddThread(3, "second model");
  trace_.OnThread(other);
  InLayer(kSecond, 21);
  trace_.Alloc(0x2000, 2);
  trace_.OnThread(worker_);
  trace_.StackIs({});
  trace_.InNode(4);
  trace_.Alloc(0x3000, 4);
  EXPECT_THAT(By("module"), UnorderedElementsAre(Pair("first", 1), Pair("second", 6)));
}

TEST_F(NamesTest, NodesOlderThanMemoryReachesAreNotJoined) {
  AddNet();
  InLayer(kFirst, 20);
  for (uint64_t node = 1; node <= 70'000; ++node) {
    trace_.NextNode(node);
    trace_.Alloc(0x1000, 1);
    trace_.Free(0x1000);
  }
  trace_.OnThread(worker_);
  trace_.StackIs({});
  trace_.InNode(100);
  trace_.Alloc(0x2000, 2);
  trace_.InNode(69'000);
  trace_.Alloc(0x3000, 4);
  EXPECT_THAT(By("module"), UnorderedElementsAre(Pair("(none)", 2), Pair("first", 4)));
}

TEST_F(NamesTest, TiedWeightsCountOnceWithAllTheirNames) {
  AddNet();
  trace_.Alloc(0x1000, 1024);
  trace_.Name(NameKind::kParameter, 0x1000, "embed.weight", 1000, kNet);
  trace_.Name(NameKind::kParameter, 0x1000, "second.weight", 1000, kNet);
  trace_.Name(NameKind::kParameter, 0x1000, "embed.weight", 1000, kNet);  // seen again
  EXPECT_THAT(By("parameter"), ElementsAre(Pair("embed.weight = second.weight", 1024)));
  EXPECT_THAT(By("module"), ElementsAre(Pair("embed", 1024)));
  EXPECT_THAT(By("category"), UnorderedElementsAre(Pair("parameter", 1000), Pair("rounding", 24)));
  EXPECT_THAT(RowBytes(ReportOf(trace_)), UnorderedElementsAre(Pair("PyTorch / parameter", 1000),
                                                               Pair("PyTorch / rounding", 24)));
}

TEST_F(NamesTest, BracketsInAModulesNameStay) {
  AddNet();
  trace_.Alloc(0x1000, 1000);
  trace_.Name(NameKind::kParameter, 0x1000, "block[0].weight", 1000, kNet);
  EXPECT_THAT(By("parameter"), ElementsAre(Pair("block[0].weight", 1000)));
  EXPECT_THAT(By("module"), ElementsAre(Pair("block[0]", 1000)));
}

TEST_F(NamesTest, GradientsAndStateOfTiedWeightsHaveTheirNames) {
  AddNet();
  trace_.Alloc(0x2000, 16);
  trace_.Name(NameKind::kGradient, 0x2000, "second.weight", 16, kNet);
  trace_.Alloc(0x1000, 16);
  trace_.Name(NameKind::kParameter, 0x1000, "embed.weight", 16, kNet);
  trace_.Name(NameKind::kParameter, 0x1000, "second.weight", 16, kNet);
  trace_.Alloc(0x3000, 32);
  trace_.Name(NameKind::kOptimizerState, 0x3000, "embed.weight", 32, 0x777, "exp_avg");
  trace_.Alloc(0x4000, 1);
  trace_.Name(NameKind::kGradient, 0x4000, "first.weight", 1, kNet);
  EXPECT_THAT(By("parameter"), UnorderedElementsAre(Pair("embed.weight = second.weight", 64),
                                                    Pair("first.weight", 1)));
}

TEST_F(NamesTest, AFlatBufferIsSharedOutToItsParametersByBytes) {
  AddNet();
  trace_.Alloc(0x1000, 1024);
  trace_.Name(NameKind::kParameter, 0x1000, "first.weight", 1000, kNet);
  trace_.Alloc(0x2000, 512);
  trace_.Name(NameKind::kParameter, 0x2000, "second.weight", 500, kNet);
  trace_.Alloc(0x3000, 512);
  trace_.Name(NameKind::kParameter, 0x3000, "second.bias", 8, kNet);
  // One buffer for all gradients, as in DDP, and 92 unused bytes.
  trace_.Alloc(0x4000, 2048);
  for (const char* name : {"first.weight", "second.weight", "second.bias"})
    trace_.Name(NameKind::kGradient, 0x4000, name, 1600, kNet);
  EXPECT_THAT(By("module"), UnorderedElementsAre(Pair("first", 24 + 1000 + 1000 + 92 + 448),
                                                 Pair("second", 12 + 504 + 508 + 508)));
  EXPECT_THAT(By("parameter"), Contains(Pair("second.weight", 12 + 500 + 500)));
  EXPECT_THAT(By("category"), UnorderedElementsAre(Pair("parameter", 1508), Pair("gradient", 1600),
                                                   Pair("rounding", 24 + 12 + 504 + 448)));
}

// Flattened weights: the parameters are views of one storage, and an optimizer holds the whole
// storage.
TEST_F(NamesTest, TheStateOfAFlatParameterIsSharedOutLikeItsParts) {
  AddNet();
  const auto part = [&](NameKind kind, uint64_t address, const char* name, uint64_t requested,
                        uint64_t offset, uint64_t bytes, const char* detail = "") {
    trace::Event& event = trace_.Name(kind, address, name, requested, kNet, detail);
    event.As<trace::Name>().offset = offset;
    event.As<trace::Name>().bytes = bytes;
  };
  trace_.Alloc(0x1000, 2048);
  trace_.Name(NameKind::kParameter, 0x1000, "param_groups.0.0", 1640, 0x777);
  part(NameKind::kParameter, 0x1000, "second.weight", 1640, 1040, 500);
  part(NameKind::kParameter, 0x1000, "first.weight", 1640, 0, 1000);
  part(NameKind::kParameter, 0x1000, "tied.weight", 1640, 1040, 500);
  // One state of all, in elements twice as wide; one whose views belong to the parameters.
  trace_.Alloc(0x4000, 3280);
  trace_.Name(NameKind::kOptimizerState, 0x4000, "param_groups.0.0", 3280, 0x777, "exp_avg");
  trace_.Alloc(0x6000, 1540);
  part(NameKind::kOptimizerState, 0x6000, "first.weight", 1540, 0, 1000, "momentum");
  part(NameKind::kOptimizerState, 0x6000, "second.weight", 1540, 1000, 500, "momentum");
  EXPECT_THAT(
      By("module"),
      UnorderedElementsAre(Pair("first", 1000 + 2000 + 1000 + 40), Pair("second", 500 + 1000 + 500),
                           Pair("param_groups.0", 40 + 100 + 408 + 80 + 200)));
  EXPECT_THAT(By("parameter"), Contains(Pair("second.weight = tied.weight", 500 + 1000 + 500)));
  EXPECT_THAT(By("tag"), UnorderedElementsAre(Pair("(none)", 2048), Pair("exp_avg", 3280),
                                              Pair("momentum", 1540)));
  const Report report = ReportOf(trace_);
  EXPECT_THAT(By("category"), UnorderedElementsAre(Pair("parameter", 1640), Pair("rounding", 408),
                                                   Pair("optimizer state", 3280 + 1540)));
}

TEST_F(NamesTest, WhereSizesAreNotKnownAFlatBufferHasAllNames) {
  AddNet();
  trace_.Alloc(0x1000, 2048);
  trace_.Name(NameKind::kParameter, 0x1000, "first.weight", 2048, kNet);
  trace_.Name(NameKind::kParameter, 0x1000, "second.weight", 2048, kNet);
  EXPECT_THAT(By("parameter"), ElementsAre(Pair("first.weight = second.weight", 2048)));
}

TEST_F(NamesTest, ALaterNameOfTheSameAddressIsTheNewBlocks) {
  AddNet();
  trace_.Alloc(0x1000, 1);
  trace_.Name(NameKind::kGradient, 0x1000, "first.weight", 0, kNet);
  trace_.Mark("first");
  trace_.Free(0x1000);
  trace_.Alloc(0x1000, 2);
  trace_.Name(NameKind::kOptimizerState, 0x1000, "second.weight", 0, 0x777, "exp_avg");
  trace_.Mark("second");
  trace_.Free(0x1000);
  trace_.Alloc(0x1000, 4);
  EXPECT_THAT(By("parameter", "mark:first"), ElementsAre(Pair("first.weight", 1)));
  EXPECT_THAT(By("category", "mark:first"), ElementsAre(Pair("gradient", 1)));
  EXPECT_THAT(By("parameter", "mark:second"), ElementsAre(Pair("second.weight", 2)));
  EXPECT_THAT(By("tag", "mark:second"), ElementsAre(Pair("exp_avg", 2)));
  EXPECT_THAT(By("parameter"), ElementsAre(Pair("(none)", 4)));
}

TEST_F(NamesTest, AModuleNamesAllOfItsLifeAndNoOther) {
  AddNet();
  InLayer(kFirst, 20);
  trace_.Alloc(0x1000, 1);
  trace_.ModuleGone(kFirst);
  trace_.Alloc(0x2000, 2);  // before the new one is found
  trace_.Module(kFirst, kNet, "replaced", "Conv2d");
  trace_.Alloc(0x3000, 4);
  InLayer(0x555, 21);  // never found: the named caller
  trace_.Alloc(0x4000, 8);
  trace_.ModuleGone(kNet);
  Frames frames = MainFrames(50);
  Call(frames, 0x666, kTrain, 30);
  trace_.StackIs(trace_.PythonIn(frames));
  trace_.Alloc(0x5000, 16);
  EXPECT_THAT(By("module"), UnorderedElementsAre(Pair("first", 1), Pair("replaced", 6),
                                                 Pair("Net", 8), Pair("(unnamed module)", 16)));
}

// `net.first = merged`, as merging an adapter or quantising a layer does it.
TEST_F(NamesTest, AReplacedModulesPathHasTheClassOfItsTime) {
  AddNet();
  trace_.Module(0x111, kNet, "first.base", "Linear");
  trace_.Alloc(0x1000, 1);
  trace_.Name(NameKind::kParameter, 0x1000, "first.adapter", 0, kNet);
  trace_.Alloc(0x2000, 2);
  trace_.Name(NameKind::kParameter, 0x2000, "first.base.weight", 0, kNet);
  trace_.ModuleGone(kFirst);
  trace_.Module(0x111, kNet, "first", "Merged");
  trace_.Alloc(0x3000, 4);
  trace_.Name(NameKind::kParameter, 0x3000, "first.weight", 0, kNet);
  EXPECT_THAT(By("class"), UnorderedElementsAre(Pair("Linear", 3), Pair("Merged", 4)));
}

TEST_F(NamesTest, SeveralModelsHaveTheirClassBeforeThePath) {
  trace_.Module(0x100, 0x100, "", "Generator");
  trace_.Module(0x110, 0x100, "main.0", "Linear");
  trace_.Module(0x200, 0x200, "", "Generator");
  trace_.Module(0x210, 0x200, "main.0", "Linear");
  trace_.Module(0x300, 0x300, "", "Linear");  // no submodules, but a parameter
  trace_.Module(0x400, 0x400, "", "MSELoss");
  trace_.Alloc(0x1000, 1);
  trace_.Name(NameKind::kParameter, 0x1000, "main.0.weight", 0, 0x200);
  trace_.Alloc(0x2000, 2);
  trace_.Name(NameKind::kParameter, 0x2000, "weight", 0, 0x300);
  trace_.Alloc(0x3000, 4);
  trace_.Name(NameKind::kOptimizerState, 0x3000, "weight", 0, 0x999, "exp_avg");
  InLayer(0x110, 20);
  trace_.Alloc(0x4000, 8);
  InLayer(0x210, 20);
  trace_.Alloc(0x5000, 16);
  InLayer(0x400, 20);
  trace_.Alloc(0x6000, 32);
  EXPECT_THAT(By("module"),
              UnorderedElementsAre(Pair("Generator.main.0", 8), Pair("Generator#2.main.0", 17),
                                   Pair("Linear", 6), Pair("MSELoss", 32)));
  EXPECT_THAT(By("parameter"), UnorderedElementsAre(Pair("Generator#2.main.0.weight", 1),
                                                    Pair("Linear.weight", 6), Pair("(none)", 56)));
}

TEST_F(NamesTest, ACopyOfARootIsCalledAsItAndAWrapperByItsClass) {
  for (const uint64_t root : {0x100u, 0x200u}) {
    trace_.Module(root, root, "", "Net");
    trace_.Module(root + 0x10, root, "fc", "Linear");
  }
  trace_.Module(0x300, 0x200, "", "Net");
  trace_.Module(0x310, 0x200, "fc", "Linear");
  trace_.Module(0x400, 0x200, "", "DataParallel");
  uint64_t bytes = 1;
  for (const uint64_t object : {0x200u, 0x300u, 0x310u, 0x400u}) {
    InLayer(object, 20);
    trace_.Alloc(0x1000 * bytes, bytes);
    bytes *= 2;
  }
  EXPECT_THAT(By("module"),
              UnorderedElementsAre(Pair("Net#2", 3), Pair("Net#2.fc", 4), Pair("DataParallel", 8)));
}

TEST_F(NamesTest, ARootThatTurnsOutToBeAPartIsNone) {
  AddNet();
  trace_.Module(0x800, 0x800, "", "Trainer");
  trace_.Module(kNet, 0x800, "model", "Net");
  trace_.Module(kFirst, 0x800, "model.first", "Linear");
  InLayer(kFirst, 20);
  trace_.Alloc(0x1000, 1);
  EXPECT_THAT(By("module"), ElementsAre(Pair("model.first", 1)));
}

TEST_F(NamesTest, ScopesNameWhatNoModuleDoes) {
  AddNet();
  trace_.ScopeIs("train/evaluate");
  InMain(10);
  trace_.Alloc(0x1000, 1);
  InLayer(kFirst, 20);
  trace_.NextNode(3);
  trace_.Alloc(0x2000, 2);
  InMain(30);
  trace_.NextNode(4);
  trace_.Alloc(0x3000, 4);
  trace_.ScopeIs("");
  trace_.OnThread(worker_);
  trace_.StackIs({});
  trace_.InNode(3);
  trace_.Alloc(0x4000, 8);  // the scope of its forward
  EXPECT_THAT(By("module"), UnorderedElementsAre(Pair("train/evaluate", 13), Pair("first", 2)));
  EXPECT_THAT(By("tag"), ElementsAre(Pair("train/evaluate", 15)));
  ReportQuery query = At("end");
  query.where = {{Dimension::kModule, "train"}};
  EXPECT_EQ(ReportOf(trace_, query).devices[0].ledger_bytes, 13u);
  query.where = {{Dimension::kModule, "trai"}};
  EXPECT_EQ(ReportOf(trace_, query).devices[0].ledger_bytes, 0u);
}

TEST_F(NamesTest, NamesOfUnknownMemoryAreALoss) {
  trace_.Name(NameKind::kParameter, 0x1000, "w", 100);
  trace_.Name(NameKind::kTag, 0x2000, "x", 10);
  trace_.Name(NameKind::kParameter, 0x1000, "w", 100);  // said again, at the end
  const Report report = ReportOf(trace_);
  ASSERT_EQ(report.losses.size(), 1u);
  EXPECT_EQ(report.losses[0].name, "names of unknown memory");
  EXPECT_EQ(report.losses[0].count, 2u);
  EXPECT_EQ(report.losses[0].bytes, 110u);
}

TEST_F(NamesTest, NamesOfAParentsMemoryAreNone) {
  trace_.Alloc(0x1000, 100);
  const trace::ProcessId worker = trace_.AddProcess(8);
  trace_.ParentIs(worker, trace::ProcessId{0});
  trace_.In(worker);
  trace_.Name(NameKind::kParameter, 0x1000, "w", 100);  // of the model that the fork copied
  EXPECT_TRUE(ReportOf(trace_).losses.empty());
  EXPECT_THAT(By("category"), ElementsAre(Pair("unknown", 100)));
  trace_.Name(NameKind::kParameter, 0x2000, "x", 10);
  ASSERT_EQ(ReportOf(trace_).losses.size(), 1u);
  EXPECT_EQ(ReportOf(trace_).losses[0].count, 1u);
}

TEST_F(NamesTest, TimelinesAndListsOfLivesHaveCategories) {
  AddNet();
  InMain(10);
  trace_.Alloc(0x1000, 1000);
  InLayer(kFirst, 20);
  trace_.Alloc(0x2000, 500);
  InBackward();
  trace_.Alloc(0x3000, 70);
  trace_.Free(0x3000);
  trace_.Free(0x2000);
  trace_.Name(NameKind::kParameter, 0x1000, "first.weight", 900, kNet);
  auto analysis = Analyse(trace_);
  const auto timelines = MakeTimelines(*analysis, 100'000);
  const Timeline& timeline = timelines->front();
  ASSERT_THAT(timeline.groups, ElementsAre("parameter", "activation", "temporary", "rounding"));
  const auto highest = [&](size_t band) {
    return *std::max_element(timeline.peak[band].begin(), timeline.peak[band].end());
  };
  EXPECT_EQ(highest(0), 900u);
  EXPECT_EQ(highest(1), 500u);
  EXPECT_EQ(highest(2), 70u);
  EXPECT_EQ(highest(3), 100u);

  const tables::Tables& tables = analysis->tables();
  std::vector<std::string> texts;
  for (const tables::AllocationRow& row : Allocations(*analysis)) {
    const tables::SiteRow& site = tables.sites[row.site.value];
    texts.push_back(std::string(format::CategoryName(site.category)) + "|" +
                    std::string(tables.strings[site.module]) + "|" +
                    std::string(tables.strings[site.parameter]));
  }
  EXPECT_THAT(texts,
              ElementsAre("parameter|first|first.weight", "activation|first|", "temporary||"));
}

TEST_F(NamesTest, TablesOfCategoriesAndModules) {
  AddNet();
  trace_.Alloc(0x1000, 1000);
  trace_.Name(NameKind::kParameter, 0x1000, "first.weight", 900, kNet);
  InLayer(kFirst, 20);
  trace_.Alloc(0x2000, 500);
  trace_.StackIs({});
  trace_.Alloc(0x3000, 7);
  const Report report = ReportOf(trace_, At("end"));
  std::vector<std::string> categories;
  uint64_t all = 0;
  for (const CategoryEntry& entry : report.categories) {
    categories.push_back(entry.category);
    all += entry.bytes;
  }
  EXPECT_THAT(categories, ElementsAre("parameter", "retained", "rounding"));
  EXPECT_EQ(all, report.devices[0].ledger_bytes);
  ASSERT_EQ(report.top_modules.size(), 1u);
  EXPECT_EQ(report.top_modules[0].module, "first");
  EXPECT_EQ(report.top_modules[0].type, "Linear");
  EXPECT_EQ(report.top_modules[0].bytes, 1500u);
  EXPECT_THAT(report.top_modules[0].categories,
              ElementsAre(Pair("parameter", 900), Pair("retained", 500), Pair("rounding", 100)));
  EXPECT_EQ(report.block_bytes, 1507u);
  EXPECT_EQ(report.block_bytes_with_category, 1507u);
  EXPECT_EQ(report.block_bytes_with_place, 1500u);
}

}  // namespace
}  // namespace vramscope::query
