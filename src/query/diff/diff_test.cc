// SPDX-License-Identifier: Apache-2.0
// Diffs of trainings made by hand that differ in one thing each.
#include "query/diff/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/units.h"
#include "query/testing/random_recording.h"
#include "tables/imported.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;
using format::Phase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// A training of some layers: what each iteration allocates, in MiB.
struct Training {
  uint64_t layers = 4;
  uint64_t parameter = 2;
  uint64_t wide_parameter = 2;  // of layer 1
  uint64_t activation = 8;      // of each layer
  uint64_t positions = 4;       // of what inputs are combined with
  uint64_t state = 4;           // of each parameter; 0: the optimizer has none
  uint64_t leak_bytes = 0;      // of each iteration
  bool keeps = false;           // the last iteration's activations
  bool unknown = false;         // activations have no category
  bool asleep = false;          // parameters have no device memory
  uint32_t first_line = 10;     // of its program
  int64_t shift_ns = 0;         // everything happens later
  int64_t iterations = 6;
  std::string command = "python train.py";
  std::string optimizers;  // that stepped; the class whose step() allocated is Adam's
  tables::DeviceKind kind = tables::DeviceKind::kGpu;
  int64_t context = 500 * static_cast<int64_t>(kMiB);
};

class TrainingMaker {
 public:
  explicit TrainingMaker(const Training& training) : training_(training) {}

  std::unique_ptr<tables::MemoryRecording> Make() {
    const int64_t end_ns = Iteration(training_.iterations);
    device_ = builder_.Device(training_.kind, training_.kind == tables::DeviceKind::kGpu ? 0 : -1);
    const auto process = builder_.Process(7, end_ns);
    builder_.tables.processes.back().command = builder_.Text(training_.command);
    if (!training_.optimizers.empty()) {
      builder_.tables.notes.push_back(
          {builder_.Text(tables::kOptimizersNote), builder_.Text(training_.optimizers)});
      tables::FrameRow step;
      step.file = builder_.Text("/site-packages/torch/optim/adam.py");
      step.function = builder_.Text("Adam.step");
      builder_.Append(builder_.tables.frames, step);
    }
    builder_.tables.processes.back().begin_ns = Iteration(0) - 900;
    builder_.tables.session.begin_ns = Iteration(0) - 900;
    builder_.tables.session.end_ns = end_ns;
    account_ = builder_.Account(process, device_);
    allocator_ = builder_.Text("PyTorch");
    if (training_.kind == tables::DeviceKind::kGpu) {
      tables::SiteRow context = builder_.SiteOf(account_, Part::kContext, Category::kDriver);
      context.owner = builder_.Text("driver-owned");
      builder_.Step(builder_.Counter(builder_.Site(context)), Iteration(0) - 800,
                    training_.context);
    }
    for (uint64_t layer = 0; layer < training_.layers; ++layer)
      AddLayer(layer);
    const auto positions = Site(Category::kTemporary, Phase::kForward, "positions", 0);
    const auto leak = Site(Category::kActivation, Phase::kOther, "", 7);
    for (int64_t i = 0; i < training_.iterations; ++i) {
      builder_.Row(positions, Iteration(i) + 10, Iteration(i) + 12, training_.positions * kMiB);
      if (training_.leak_bytes != 0)
        builder_.Row(leak, Iteration(i) + 300, tables::kNever, training_.leak_bytes);
      builder_.tables.iterations.push_back({process, i, Iteration(i), Iteration(i + 1)});
    }
    return builder_.Make();
  }

 private:
  int64_t Iteration(int64_t number) const { return 1000 + training_.shift_ns + number * 1000; }

  tables::SiteId Site(Category category, Phase phase, const std::string& module, uint32_t line) {
    tables::FrameRow frame;
    frame.file = builder_.Text("/home/" + std::to_string(training_.first_line) + "/train.py");
    frame.function = builder_.Text("forward");
    frame.line = training_.first_line + line;
    const tables::FrameId frame_id{builder_.Append(builder_.tables.frames, frame)};
    builder_.tables.sources.push_back(
        {frame.file, frame.line, builder_.Text("x = f" + std::to_string(line) + "(x)")});
    tables::SiteRow row = builder_.SiteOf(account_, Part::kAllocated, category);
    row.owner = row.allocator = allocator_;
    row.phase = phase;
    row.module = module.empty() ? tables::StringId{} : builder_.Text(module);
    row.stack = row.place =
        tables::StackId{builder_.Append(builder_.tables.stacks, {tables::StackId{}, frame_id})};
    return builder_.Site(row);
  }

  tables::SiteId OfParameter(Category category, const std::string& module, const char* tag) {
    const tables::SiteId site = Site(category, Phase::kOther, module, 1);
    tables::SiteRow& row = builder_.tables.sites[site.value];
    row.parameter = builder_.Text(module + ".weight");
    row.tag = *tag == 0 ? tables::StringId{} : builder_.Text(tag);
    return site;
  }

  void AddLayer(uint64_t layer) {
    const std::string module = "blocks." + std::to_string(layer);
    const uint64_t parameter = layer == 1 ? training_.wide_parameter : training_.parameter;
    const tables::SiteId of_parameter = OfParameter(Category::kParameter, module, "");
    builder_.tables.sites[of_parameter.value].unbacked = training_.asleep ? 1 : 0;
    builder_.Row(of_parameter, Iteration(0) - 500, tables::kNever, parameter * kMiB);
    if (training_.state != 0) {
      builder_.Row(OfParameter(Category::kOptimizerState, module, "exp_avg"), Iteration(0) + 900,
                   tables::kNever, training_.state * kMiB * parameter / training_.parameter);
    }
    const auto activation = Site(training_.unknown ? Category::kUnknown : Category::kActivation,
                                 Phase::kForward, module, 2);
    for (int64_t i = 0; i < training_.iterations; ++i) {
      const int64_t begin = Iteration(i) + 20 + static_cast<int64_t>(layer);
      const int64_t end = training_.keeps ? begin + 1000 : Iteration(i) + 500;
      builder_.Row(activation, begin, end, training_.activation * kMiB);
    }
  }

  const Training& training_;
  RecordingBuilder builder_;
  tables::DeviceId device_;
  tables::AccountId account_;
  tables::StringId allocator_;
};

Diff Compare(const Training& a, const Training& b) {
  const auto x = TrainingMaker(a).Make();
  const auto y = TrainingMaker(b).Make();
  auto diff = MakeDiff(*x, *y);
  EXPECT_TRUE(diff.ok()) << diff.status().message();
  if (!diff.ok())
    return {};
  uint64_t sum_a = 0;
  uint64_t sum_b = 0;
  for (const DiffRow& row : diff->rows) {
    sum_a += row.a_bytes;
    sum_b += row.b_bytes;
  }
  EXPECT_EQ(sum_a, diff->a_bytes);
  EXPECT_EQ(sum_b, diff->b_bytes);
  return *diff;
}

TEST(DiffTest, TheSameProgramDoesNotDiffer) {
  Training later;
  later.shift_ns = 12345;
  later.first_line = 40;  // a comment was added at its start, in another directory
  const Diff diff = Compare({}, later);
  EXPECT_TRUE(diff.same);
  EXPECT_THAT(diff.causes, IsEmpty());
  EXPECT_THAT(diff.notes, IsEmpty());
  EXPECT_EQ(diff.delta_bytes(), 0);
  for (const DiffRow& row : diff.rows)
    EXPECT_EQ(row.a_bytes, row.b_bytes) << row.path[3] << " " << row.path[5];
}

TEST(DiffTest, ParametersThatSleepAreNotGone) {
  Training asleep;
  asleep.asleep = true;
  const Diff diff = Compare({}, asleep);
  EXPECT_THAT(diff.causes, ElementsAre("8.00 MiB of parameters of blocks.[0-3] x4 are asleep in B: "
                                       "live, without device memory"));
  EXPECT_THAT(diff.notes, ElementsAre("asleep at the peak, without device memory: 0 B in A, "
                                      "8.00 MiB in B"));
  EXPECT_EQ(diff.delta_bytes(), -8 * static_cast<int64_t>(kMiB));
  EXPECT_EQ(diff.b_unbacked_bytes, 8 * kMiB);
  EXPECT_THAT(Compare(asleep, {}).causes, ElementsAre(HasSubstr("are asleep in A")));
  EXPECT_TRUE(Compare(asleep, asleep).same);
}

TEST(DiffTest, SmallDifferencesAreNoise) {
  Training b;
  b.context += 3 * static_cast<int64_t>(kMiB);
  const Diff diff = Compare({}, b);
  EXPECT_TRUE(diff.same);
  EXPECT_EQ(diff.delta_bytes(), 3 * static_cast<int64_t>(kMiB));
  EXPECT_GE(diff.driver_threshold_bytes, 3 * kMiB);
  b.context += 3 * static_cast<int64_t>(kMiB);
  EXPECT_THAT(Compare({}, b).causes,
              ElementsAre("driver memory grew by 6.00 MiB: driver-owned / context"));
}

TEST(DiffTest, ABatchScalesActivationsButNotWhatTheyAreCombinedWith) {
  Training b;
  b.activation = 16;
  EXPECT_THAT(
      Compare({}, b).causes,
      ElementsAre("activations of blocks.[0-3] x4 grew by 32.0 MiB (2.00x): consistent with "
                  "a larger batch; parameters and positions are unchanged"));
}

TEST(DiffTest, WhereAllScalesNothingTellsBatchFromSequence) {
  Training b;
  b.activation = 16;
  b.positions = 8;
  EXPECT_THAT(Compare({}, b).causes, ElementsAre(HasSubstr("a larger batch or a longer sequence")));
  EXPECT_THAT(Compare(b, {}).causes,
              ElementsAre(HasSubstr("(0.50x): consistent with a smaller batch or a shorter")));
}

TEST(DiffTest, WhatGrowsWithTheSquareIsASequence) {
  Training b;
  b.activation = 16;
  b.positions = 16;  // attention's scores
  EXPECT_THAT(
      Compare({}, b).causes,
      ElementsAre(HasSubstr("consistent with a longer sequence, with train.py:10 in forward "
                            "by its square (4.00x)")));
}

TEST(DiffTest, AnOptimizerThatAppears) {
  Training a;
  a.state = 0;
  const Diff diff = Compare(a, {});
  EXPECT_THAT(diff.causes,
              ElementsAre("optimizer state appeared: 16.0 MiB, exp_avg of 4 parameters"));
  EXPECT_THAT(Compare({}, a).causes, ElementsAre(StartsWith("optimizer state is gone: 16.0 MiB")));
}

// AdamW steps with what it has from Adam.
TEST(DiffTest, TheOptimizerIsTheClassThatStepped) {
  Training a, b;
  a.optimizers = "SGD";
  a.state = 0;
  b.optimizers = "AdamW";
  EXPECT_THAT(Compare(a, b).causes, ElementsAre(HasSubstr("(SGD in A, AdamW in B)")));
}

TEST(DiffTest, AWiderLayerComesWithItsState) {
  Training b;
  b.wide_parameter = 3;
  EXPECT_THAT(Compare({}, b).causes,
              ElementsAre("layer blocks.1 is wider: parameters grew from 2.00 MiB to 3.00 MiB, and "
                          "with them optimizer state by 2.00 MiB"));
}

TEST(DiffTest, ANewLayerComesWithAllItHas) {
  Training b;
  b.layers = 6;
  EXPECT_THAT(Compare({}, b).causes,
              ElementsAre("layers blocks.[4,5] x2 are new: 4.00 MiB of parameters, 8.00 MiB of "
                          "optimizer state, 16.0 MiB of activations"));
  EXPECT_THAT(Compare(b, {}).causes, ElementsAre(StartsWith("layers blocks.[4,5] x2 are gone")));
}

TEST(DiffTest, ALeakIsToldByWhatItAddsToEachIteration) {
  Training b;
  b.leak_bytes = 4;  // however small
  EXPECT_THAT(Compare({}, b).causes,
              ElementsAre("4 B more per iteration are never freed: train.py:17 in forward "
                          "(activations), 24 B after iteration 5"));
  EXPECT_TRUE(Compare(b, b).same);
  EXPECT_THAT(Compare(b, {}).causes, ElementsAre(HasSubstr("are freed now")));
}

TEST(DiffTest, WhatIsKeptBeyondItsIteration) {
  Training b;
  b.keeps = true;
  const Diff diff = Compare({}, b);
  ASSERT_THAT(diff.causes, Not(IsEmpty()));
  EXPECT_THAT(diff.causes[0],
              StartsWith("32.0 MiB of activations of blocks.[0-3] x4 are kept beyond their "
                         "iteration (A frees them within it): allocated at train.py:12"));
  ASSERT_THAT(diff.iterations, Not(IsEmpty()));
  EXPECT_EQ(diff.iterations.back().b_end_bytes - diff.iterations.back().a_end_bytes, 32 * kMiB);
}

TEST(DiffTest, AMoveBetweenCategoriesIsNoGrowth) {
  Training a;
  a.unknown = true;
  const Diff diff = Compare(a, {});
  EXPECT_EQ(diff.delta_bytes(), 0);
  EXPECT_THAT(diff.causes, ElementsAre("32.0 MiB of blocks.[0-3] x4 moved from unknown to "
                                       "activation: train.py:12 in forward"));
  ASSERT_THAT(diff.moves, SizeIs(4));
  EXPECT_EQ(diff.moves[0].from, "unknown");
  EXPECT_EQ(diff.moves[0].bytes, 8 * kMiB);
}

TEST(DiffTest, OtherProgramsAndDevicesAreAllowedAndSaid) {
  Training b;
  b.command = "python train.py --batch 16";
  EXPECT_THAT(Compare({}, b).notes,
              ElementsAre("the command lines differ: nothing in A, --batch 16 in B"));
  Training a = b;
  a.command = "python train.py --batch 8";
  EXPECT_THAT(Compare(a, b).notes,
              ElementsAre("the command lines differ: --batch 8 in A, --batch 16 in B"));
  b = {};
  b.kind = tables::DeviceKind::kCpu;
  EXPECT_THAT(Compare({}, b).notes,
              ElementsAre("other devices: GPU memory in A, CPU tensors in B"));
  b = {};
  b.iterations = 9;
  EXPECT_THAT(
      Compare({}, b).notes,
      ElementsAre("6 iterations in A, 9 in B: growth is compared over the iterations of both, "
                  "peaks over the whole runs"));
}

TEST(DiffTest, WithoutAllocationsThereIsNothingToCompare) {
  RecordingBuilder empty;
  empty.tables.session.path = "empty.vram";
  const auto none = empty.Make();
  const auto some = TrainingMaker({}).Make();
  const auto diff = MakeDiff(*some, *none);
  ASSERT_FALSE(diff.ok());
  EXPECT_THAT(diff.status().message(), StartsWith("empty.vram: nothing was allocated"));
  // One allocation is enough.
  Training one;
  one.iterations = 1;
  one.layers = 1;
  EXPECT_TRUE(Compare(one, one).same);
}

TEST(DiffTest, WhatIsLiveAtTheFirstEventIsApart) {
  RecordingBuilder builder;
  const auto gpu = builder.Device(tables::DeviceKind::kGpu, 0);
  const auto process = builder.Process(7, 900);
  builder.tables.processes.back().begin_ns = 100;
  const auto account = builder.Account(process, gpu);
  const auto before = builder.Site(builder.SiteOf(account, Part::kBeforeRecording));
  builder.Row(before, 100, tables::kNever, 70 * kMiB);
  builder.Row(builder.Site(builder.SiteOf(account)), 200, 300, 5 * kMiB);
  const auto recording = builder.Make();
  const auto diff = MakeDiff(*recording, *recording);
  ASSERT_TRUE(diff.ok());
  ASSERT_THAT(diff->start, SizeIs(1));
  EXPECT_EQ(diff->start[0].a_bytes, 70 * kMiB);
  EXPECT_EQ(diff->start[0].path[4], "before recording");
  EXPECT_EQ(diff->a_bytes, 75 * kMiB);
}

// Something that is allocated once, by a stack of train.py's lines, the innermost last.
struct Allocated {
  Category category = Category::kTemporary;
  std::vector<uint32_t> lines;
  uint64_t bytes = 8 * kMiB;
  std::string module;
  std::string parameter;
};

std::unique_ptr<tables::MemoryRecording> RecordingOf(const std::vector<Allocated>& pieces) {
  RecordingBuilder builder;
  const auto device = builder.Device(tables::DeviceKind::kCpu, -1);
  const auto account = builder.Account(builder.Process(7, 900), device);
  for (const Allocated& piece : pieces) {
    tables::SiteRow row = builder.SiteOf(account, Part::kAllocated, piece.category);
    row.owner = row.allocator = builder.Text("PyTorch");
    row.module = piece.module.empty() ? tables::StringId{} : builder.Text(piece.module);
    row.parameter = piece.parameter.empty() ? tables::StringId{} : builder.Text(piece.parameter);
    for (const uint32_t line : piece.lines) {
      tables::FrameRow frame;
      frame.file = builder.Text("train.py");
      frame.function = builder.Text("f" + std::to_string(line));
      frame.line = line;
      const tables::FrameId frame_id{builder.Append(builder.tables.frames, frame)};
      row.place = tables::StackId{builder.Append(builder.tables.stacks, {row.place, frame_id})};
    }
    row.stack = row.place;
    builder.Row(builder.Site(row), 100, tables::kNever, piece.bytes);
  }
  return builder.Make();
}

TEST(DiffTest, WhatBecomesABufferHasMoved) {
  const auto plain = RecordingOf({{Category::kInput, {3, 6}}});
  const auto buffer = RecordingOf({{Category::kBuffer, {3, 6}, 8 * kMiB, "model", "mask"}});
  auto diff = MakeDiff(*plain, *buffer);
  ASSERT_TRUE(diff.ok());
  EXPECT_THAT(diff->causes,
              ElementsAre("8.00 MiB of model moved from input to buffer: train.py:6 in f6"));
  ASSERT_THAT(diff->moves, SizeIs(1));
  EXPECT_EQ(diff->moves[0].from, "input");
  diff = MakeDiff(*buffer, *plain);
  ASSERT_TRUE(diff.ok());
  EXPECT_THAT(diff->causes, ElementsAre("8.00 MiB moved from buffer to input: train.py:6 in f6"));
  // Of another size it is something else.
  const auto larger = RecordingOf({{Category::kBuffer, {3, 6}, 9 * kMiB, "model", "mask"}});
  diff = MakeDiff(*plain, *larger);
  ASSERT_TRUE(diff.ok());
  EXPECT_THAT(diff->moves, IsEmpty());
  EXPECT_THAT(diff->causes, SizeIs(2));
}

TEST(DiffTest, TheCallerThatChangedIsNamed) {
  const Allocated first{Category::kTemporary, {1, 10, 4}};
  const Allocated second{Category::kTemporary, {1, 20, 4}, 16 * kMiB};
  const auto a = RecordingOf({first});
  const auto b = RecordingOf({first, second});
  auto diff = MakeDiff(*a, *b);
  ASSERT_TRUE(diff.ok());
  EXPECT_THAT(diff->causes, ElementsAre("temporaries grew by 16.0 MiB: train.py:4 in f4, called "
                                        "from train.py:20 in f20"));
  ASSERT_THAT(diff->rows, SizeIs(1));
  ASSERT_THAT(diff->rows[0].callers, SizeIs(2));
  EXPECT_EQ(diff->rows[0].callers[0].line, "train.py:20 in f20");
  EXPECT_EQ(diff->rows[0].callers[0].delta_bytes(), int64_t{16} * kMiB);
  EXPECT_EQ(diff->rows[0].callers[1].a_bytes, 8 * kMiB);
  EXPECT_EQ(diff->rows[0].callers[1].delta_bytes(), 0);
  // If all callers grew by the same amount, the line says enough.
  Allocated more = first;
  more.bytes *= 2;
  Allocated more_second = second;
  more_second.bytes += first.bytes;
  const auto c = RecordingOf({more, more_second});
  diff = MakeDiff(*b, *c);
  ASSERT_TRUE(diff.ok());
  EXPECT_THAT(diff->causes, ElementsAre("temporaries grew by 16.0 MiB: train.py:4 in f4"));
  EXPECT_THAT(diff->rows[0].callers, SizeIs(2));
  diff = MakeDiff(*a, *RecordingOf({more}));
  ASSERT_TRUE(diff.ok());
  EXPECT_THAT(diff->causes, ElementsAre("temporaries grew by 8.00 MiB: train.py:4 in f4"));
  EXPECT_THAT(diff->rows[0].callers, IsEmpty());
}

// Ranks on one device, each at its highest when the others are low.
std::unique_ptr<tables::MemoryRecording> RanksOnOneDevice(const std::vector<uint64_t>& bytes) {
  RecordingBuilder builder;
  const auto device = builder.Device(tables::DeviceKind::kCpu, -1);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto process = builder.Process(static_cast<uint32_t>(7 + i), 9000);
    builder.tables.processes[process.value].rank = static_cast<int32_t>(i);
    const auto account = builder.Account(process, device);
    tables::SiteRow row = builder.SiteOf(account);
    row.allocator = builder.Text("PyTorch");
    row.allocated_count = 2;
    const auto site = builder.Site(row);
    builder.Row(site, 100, 9000, kMiB);
    const auto begin_ns = static_cast<int64_t>(1000 * (i + 1));
    builder.Row(site, begin_ns + 100, begin_ns + 200, bytes[i]);
    builder.tables.iterations.push_back({process, 0, begin_ns, begin_ns + 500});
  }
  return builder.Make();
}

Diff CompareRanks(const tables::Recording& a, const tables::Recording& b) {
  size_t compared_a = 0;
  size_t compared_b = 0;
  const auto diff =
      MakeRanksDiff(RanksIn("a.vram", a), RanksIn("b.vram", b), &compared_a, &compared_b);
  EXPECT_TRUE(diff.ok());
  return *diff;
}

TEST(DiffTest, RanksThatShareADeviceHaveTheirOwnPeaks) {
  const auto a = RanksOnOneDevice({8 * kMiB, 8 * kMiB, 8 * kMiB});
  const auto b = RanksOnOneDevice({8 * kMiB, 8 * kMiB, 50 * kMiB});
  Diff diff = CompareRanks(*a, *a);
  EXPECT_TRUE(diff.same);
  ASSERT_THAT(diff.a_ranks, SizeIs(3));
  for (const DiffRank& rank : diff.a_ranks) {
    EXPECT_EQ(rank.peak_bytes, 9 * kMiB) << rank.name;
    EXPECT_FALSE(rank.outlier) << rank.name;
  }
  ASSERT_THAT(diff.iterations, SizeIs(1));
  EXPECT_EQ(diff.iterations[0].a_peak_bytes, 9 * kMiB);
  diff = CompareRanks(*a, *b);
  EXPECT_EQ(diff.delta_bytes(), 0);
  ASSERT_THAT(diff.causes, SizeIs(1));
  EXPECT_THAT(diff.causes[0],
              StartsWith("rank 2 of B is 42.0 MiB above the median of its 3 ranks"));
}

TEST(DiffTest, RandomRecordingsSumToTheirPeaks) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const auto a = RandomRecording(seed, 300, 1'000'000).Make();
    const auto b = RandomRecording(seed + 100, 300, 1'000'000).Make();
    for (const auto* other : {&a, &b}) {
      const auto diff = MakeDiff(*a, **other);
      ASSERT_TRUE(diff.ok()) << diff.status().message();
      int64_t delta = 0;
      for (const DiffRow& row : diff->rows)
        delta += row.delta_bytes();
      EXPECT_EQ(delta, diff->delta_bytes());
      EXPECT_EQ(diff->a_bytes == diff->b_bytes, other == &a);
    }
  }
}

}  // namespace
}  // namespace vramscope::query
