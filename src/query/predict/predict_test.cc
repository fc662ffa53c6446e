// SPDX-License-Identifier: Apache-2.0
// Predictions for programs made by hand, against the same programs at the size predicted.
#include "query/predict/predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "query/history/iterations.h"
#include "query/predict/course.h"
#include "query/predict/sizes.h"
#include "query/testing/random_recording.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Phase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A training of three iterations: its model, and what `step` allocates in each.
class SizedTraining {
 public:
  explicit SizedTraining(tables::DeviceKind kind = tables::DeviceKind::kCpu) {
    process_ = builder_.Process(100, 1'000'000);
    account_ = builder_.Account(process_, builder_.Device(kind, -1));
  }

  int64_t Now() { return ++now_ns_; }
  // Equal names are one place.
  size_t Allocate(const std::string& name, Category category, Phase phase, uint64_t bytes) {
    tables::SiteRow row = builder_.SiteOf(account_, format::Part::kAllocated, category);
    row.phase = phase;
    row.module = builder_.Text(name);
    row.allocator = builder_.Text("PyTorch");
    open_.push_back({builder_.Site(row), Now(), bytes});
    return open_.size() - 1;
  }
  void Free(size_t allocation) {
    const Open& open = open_[allocation];
    const uint64_t rounded = rounds_ ? (open.bytes + 511) / 512 * 512 : open.bytes;
    builder_.Row(open.site, open.begin_ns, Now(), rounded, {}, rounded - open.bytes);
    open_[allocation].begin_ns = 0;
  }
  void EndIteration() {
    const int64_t end_ns = Now();
    builder_.tables.iterations.push_back({process_, iterations_++, begin_ns_, end_ns});
    begin_ns_ = end_ns;
  }
  void Round() { rounds_ = true; }
  std::unique_ptr<tables::Recording> Make() {
    for (size_t i = 0; i < open_.size(); ++i) {
      if (open_[i].begin_ns != 0)
        Free(i);
    }
    return builder_.Make();
  }

 private:
  struct Open {
    tables::SiteId site;
    int64_t begin_ns = 0;
    uint64_t bytes = 0;
  };
  RecordingBuilder builder_;
  tables::ProcessId process_;
  tables::AccountId account_;
  std::vector<Open> open_;
  int64_t now_ns_ = 0;
  int64_t begin_ns_ = 0;
  int64_t iterations_ = 0;
  bool rounds_ = false;
};

using SizedProgram = std::function<void(SizedTraining*, uint64_t size)>;

std::unique_ptr<tables::Recording> RecordSize(const SizedProgram& step,
                                              uint64_t size,
                                              bool gpu = false) {
  SizedTraining training(gpu ? tables::DeviceKind::kGpu : tables::DeviceKind::kCpu);
  if (gpu)
    training.Round();
  training.Allocate("model", Category::kParameter, Phase::kLoad, 100'000);
  for (int i = 0; i < 3; ++i) {
    step(&training, size);
    training.EndIteration();
  }
  return training.Make();
}

uint64_t TruePeak(const SizedProgram& step, uint64_t size, bool gpu = false) {
  const auto recording = RecordSize(step, size, gpu);
  return ReadCourse(*recording)->peak_bytes;
}

util::Result<Prediction> PredictFrom(const SizedProgram& step,
                                     const std::vector<uint64_t>& sizes,
                                     const PredictOptions& options,
                                     bool gpu = false) {
  std::vector<std::unique_ptr<tables::Recording>> recordings;
  std::vector<PredictInput> inputs;
  for (const uint64_t size : sizes) {
    recordings.push_back(RecordSize(step, size, gpu));
    inputs.push_back({recordings.back().get(), std::to_string(size) + ".vram", "train", size});
  }
  return MakePrediction(std::move(inputs), options);
}

// Activations of each layer until backward, and an optimizer that needs much for a moment.
void TrainOnce(SizedTraining* training, uint64_t size) {
  std::vector<size_t> kept;
  for (int layer = 0; layer < 4; ++layer) {
    kept.push_back(training->Allocate("layer" + std::to_string(layer), Category::kActivation,
                                      Phase::kForward, 1000 * size));
  }
  const size_t scores =
      training->Allocate("attention", Category::kActivation, Phase::kForward, 30 * size * size);
  const size_t workspace =
      training->Allocate("attention", Category::kWorkspace, Phase::kForward, 20'000);
  training->Free(workspace);
  const size_t gradient =
      training->Allocate("attention", Category::kTemporary, Phase::kBackward, 30 * size * size);
  training->Free(scores);
  training->Free(gradient);
  for (const size_t layer : kept)
    training->Free(layer);
  training->Free(training->Allocate("optimizer", Category::kTemporary, Phase::kOptimizer, 150'000));
}

// One allocation more with each step of a loop.
void RunLoop(SizedTraining* training, uint64_t size) {
  std::vector<size_t> kept;
  for (uint64_t i = 0; i < size; ++i) {
    const size_t passing = training->Allocate("cell", Category::kTemporary, Phase::kForward, 5'000);
    kept.push_back(training->Allocate("cell", Category::kActivation, Phase::kForward, 1'000));
    training->Free(passing);
  }
  for (const size_t step : kept)
    training->Free(step);
}

uint64_t SumOf(const Prediction& prediction) {
  return std::accumulate(
      prediction.categories.begin(), prediction.categories.end(), uint64_t{0},
      [](uint64_t sum, const PredictCategory& category) { return sum + category.bytes; });
}

TEST(PredictTest, ThePeakMovesFromTheOptimizerToBackward) {
  for (const std::vector<uint64_t>& sizes : {std::vector<uint64_t>{8, 16}, {8, 12, 16}}) {
    const auto prediction = PredictFrom(TrainOnce, sizes, {64, {}});
    ASSERT_TRUE(prediction.ok());
    EXPECT_EQ(prediction->sources.back().phase, "optimizer");
    EXPECT_EQ(prediction->phase, "backward");
    EXPECT_EQ(prediction->peak_bytes, TruePeak(TrainOnce, 64));
    EXPECT_EQ(SumOf(*prediction), prediction->peak_bytes);
    for (const PredictSource& source : prediction->sources)
      EXPECT_EQ(source.fitted_bytes, source.peak_bytes);
    const PredictCategory& first = prediction->categories[0];
    EXPECT_EQ(first.category, "activation");
    EXPECT_EQ(first.form, "quadratic");
    EXPECT_NEAR(first.linear_bytes, 4000, 1e-3);
    EXPECT_NEAR(first.square_bytes, 30, 1e-6);
  }
}

TEST(PredictTest, WhatALoopAllocatesGrowsWithItsLength) {
  const auto prediction = PredictFrom(RunLoop, {10, 20}, {160, {}});
  ASSERT_TRUE(prediction.ok());
  EXPECT_EQ(prediction->peak_bytes, TruePeak(RunLoop, 160));
}

TEST(PredictTest, ThreeSizesTellHowWellEachIsPredicted) {
  const auto two = PredictFrom(TrainOnce, {8, 16}, {64, {}});
  EXPECT_EQ(two->sources[0].left_out_bytes, std::nullopt);
  EXPECT_THAT(two->notes[0], HasSubstr("Two sizes"));
  const auto three = PredictFrom(TrainOnce, {8, 16, 64}, {128, {}});
  for (const PredictSource& source : three->sources)
    EXPECT_EQ(source.left_out_bytes, source.peak_bytes);
  // It is another program beyond 16.
  const auto step = [](SizedTraining* training, uint64_t size) {
    TrainOnce(training, size > 16 ? 3 * size : size);
  };
  const auto wrong = PredictFrom(step, {8, 16, 64}, {128, {}});
  EXPECT_THAT(wrong->notes, Contains(HasSubstr("may be as wrong")));
}

TEST(PredictTest, OneRecordingHasARange) {
  const auto prediction = PredictFrom(TrainOnce, {16}, {64, {}});
  ASSERT_TRUE(prediction.ok());
  // The optimizer's is the peak either way; it may grow as well.
  EXPECT_EQ(*prediction->least_bytes, TruePeak(TrainOnce, 16));
  EXPECT_EQ(prediction->peak_bytes, 100'000u + 4 * 150'000u);
  for (const PredictCategory& row : prediction->categories)
    EXPECT_EQ(row.form, row.category == "parameter" ? "constant" : "constant to linear");
}

TEST(PredictTest, TheLargestSizeThatFits) {
  PredictOptions options{64, 1'000'000};
  const auto prediction = PredictFrom(TrainOnce, {8, 16}, options);
  ASSERT_TRUE(prediction->largest_size.has_value());
  const uint64_t largest = *prediction->largest_size;
  EXPECT_LE(TruePeak(TrainOnce, largest), 1'000'000u);
  EXPECT_GT(TruePeak(TrainOnce, largest + 1), 1'000'000u);
  EXPECT_EQ(prediction->fits, std::optional(largest >= 64));
  EXPECT_EQ(PredictFrom(TrainOnce, {8, 16}, {{}, 1'000'000})->size, largest);
  EXPECT_EQ(*PredictFrom(TrainOnce, {8, 16}, {64, 50'000})->largest_size, 0u);
  EXPECT_EQ(PredictFrom(TrainOnce, {8, 16}, {})->size, 32u);
}

TEST(PredictTest, SizesAreRoundedAsPyTorchDoes) {
  const auto prediction = PredictFrom(TrainOnce, {7, 13}, {61, {}}, true);
  ASSERT_TRUE(prediction.ok());
  EXPECT_EQ(prediction->peak_bytes, TruePeak(TrainOnce, 61, true));
  EXPECT_EQ(SumOf(*prediction), prediction->peak_bytes);
}

TEST(PredictTest, WhatIsFarAwayIsSaid) {
  EXPECT_THAT(PredictFrom(TrainOnce, {8, 16}, {257, {}})->notes,
              Contains(HasSubstr("extrapolation")));
  EXPECT_THAT(PredictFrom(TrainOnce, {8, 16}, {256, {}})->notes,
              Not(Contains(HasSubstr("extrapolation"))));
}

TEST(PredictTest, PlacesWithoutACounterpartAreSaid) {
  const auto step = [](SizedTraining* training, uint64_t size) {
    TrainOnce(training, size);
    if (size >= 16) {
      training->Free(
          training->Allocate("new", Category::kCommunication, Phase::kOptimizer, 400'000));
    }
  };
  const auto prediction = PredictFrom(step, {8, 16}, {32, {}});
  EXPECT_EQ(prediction->unmatched_bytes, 800'000u);
  EXPECT_THAT(prediction->notes, Contains(HasSubstr("the smaller recordings do not have")));
}

TEST(PredictTest, WhatIsKeptAtOneSizeAndNotAtAnotherIsTheSameMemory) {
  const auto step = [](SizedTraining* training, uint64_t size) {
    const size_t result =
        training->Allocate("conv", size >= 16 ? Category::kActivation : Category::kTemporary,
                           Phase::kForward, 50'000 * size);
    training->Free(result);
  };
  const auto prediction = PredictFrom(step, {4, 8, 16}, {64, {}});
  EXPECT_EQ(prediction->peak_bytes, TruePeak(step, 64));
  EXPECT_EQ(prediction->uncertain_bytes, 0u);
}

TEST(PredictTest, WhatDependsOnDataIsFittedTogether) {
  // Experts share the tokens unevenly, and differently at each size.
  const auto step = [](SizedTraining* training, uint64_t size) {
    constexpr uint64_t kShares[] = {13, 22, 29, 36};
    std::vector<size_t> kept;
    for (size_t expert = 0; expert < 4; ++expert) {
      const uint64_t share = kShares[(expert + static_cast<size_t>(std::countr_zero(size))) % 4];
      kept.push_back(training->Allocate("expert" + std::to_string(expert), Category::kActivation,
                                        Phase::kForward, 512 * share * size));
    }
    for (const size_t one : kept)
      training->Free(one);
  };
  const auto prediction = PredictFrom(step, {4, 8, 16}, {64, {}});
  EXPECT_EQ(prediction->peak_bytes, TruePeak(step, 64));
}

TEST(PredictTest, AnotherAlgorithmAtLargerSizesIsSaid) {
  const auto step = [](SizedTraining* training, uint64_t size) {
    training->Free(training->Allocate("conv", Category::kActivation, Phase::kForward,
                                      (size < 16 ? 10'007 : 25'013) * size));
  };
  const auto prediction = PredictFrom(step, {4, 8, 16}, {64, {}});
  EXPECT_EQ(prediction->peak_bytes, TruePeak(step, 64));
  EXPECT_EQ(prediction->uncertain_bytes, prediction->peak_bytes - 100'000);
  EXPECT_THAT(prediction->notes, Contains(HasSubstr("only roughly")));
}

TEST(PredictTest, IterationsThatAreMissingAreSaid) {
  const auto record = [](uint64_t size, int iterations) {
    SizedTraining training;
    for (int i = 0; i < std::max(iterations, 1); ++i) {
      TrainOnce(&training, size);
      if (i < iterations)
        training.EndIteration();
    }
    return training.Make();
  };
  const auto notes = [&](int small, int large) {
    const auto a = record(8, small);
    const auto b = record(16, large);
    const auto prediction =
        MakePrediction({{a.get(), "a.vram", "t", 8}, {b.get(), "b.vram", "t", 16}}, {});
    return prediction->notes;
  };
  EXPECT_THAT(notes(0, 0), Contains(HasSubstr("No iterations are known")));
  EXPECT_THAT(notes(2, 0), Contains(HasSubstr("b.vram: has no iterations")));
  EXPECT_THAT(notes(1, 2), Contains(HasSubstr("a.vram: has one iteration alone")));
  EXPECT_THAT(notes(2, 2), Not(Contains(HasSubstr("iteration"))));
}

std::string ErrorWith(const SizedProgram& step, const std::vector<uint64_t>& sizes) {
  return PredictFrom(step, sizes, {}).status().message();
}

TEST(PredictTest, WhatCannotBePredictedIsAnError) {
  EXPECT_THAT(ErrorWith(TrainOnce, {8, 8}), HasSubstr("all recordings are of size 8"));
  const auto recording = RecordSize(TrainOnce, 8);
  EXPECT_THAT(
      MakePrediction({{recording.get(), "a.vram", "train --batch 8", {}}}, {}).status().message(),
      HasSubstr("`predict a.vram=4`"));
  EXPECT_THAT(
      MakePrediction(
          {{recording.get(), "a.vram", "train", 8}, {recording.get(), "b.vram", "train", {}}}, {})
          .status()
          .message(),
      HasSubstr("b.vram: has no size"));
  const auto empty = SizedTraining().Make();
  EXPECT_THAT(MakePrediction({{empty.get(), "a.vram", "train", 8}}, {}).status().message(),
              HasSubstr("a.vram: nothing was allocated"));
  const auto gpu = RecordSize(TrainOnce, 16, true);
  EXPECT_THAT(MakePrediction(
                  {{recording.get(), "a.vram", "train", 8}, {gpu.get(), "b.vram", "train", 16}}, {})
                  .status()
                  .message(),
              HasSubstr("another kind"));
}

TEST(FindSizeTest, TheOneNumberThatDiffers) {
  const auto one = [](const std::vector<std::string>& commands) {
    const auto found = FindSize(commands);
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found.ok() ? *found : CommandNumber();
  };
  CommandNumber number = one({"python train.py --batch 4 -o a", "python train.py --batch 8 -o b"});
  EXPECT_EQ(number.name, "batch");
  EXPECT_THAT(number.values, ElementsAre(4, 8));
  EXPECT_EQ(one({"t --micro-batch=4", "t --micro-batch=16"}).name, "micro-batch");
  EXPECT_EQ(one({"t train.batch=4 seed=1", "t train.batch=16 seed=1"}).name, "train.batch");
  EXPECT_EQ(one({"t 4", "t 16"}).name, "argument 1");
}

TEST(FindSizeTest, AnErrorSaysWhatDiffers) {
  EXPECT_THAT(FindSize({"t --batch 4", "t --batch 4"}).status().message(),
              HasSubstr("no number differs"));
  EXPECT_THAT(FindSize({"t --batch 4", "t --batch 4 -v"}).status().message(),
              HasSubstr("no number differs"));
  EXPECT_THAT(FindSize({"t --batch 4 --seq 1", "t --batch 8 --seq 2"}).status().message(),
              HasSubstr("(batch, seq)"));
}

class CourseTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(CourseTest, ItsPeakIsThatOfTheIterations) {
  RecordingBuilder builder = RandomRecording(GetParam(), 20'000, 1'000'000);
  builder.tables.checkpointed.clear();
  const auto recording = builder.Make(512);
  const auto course = ReadCourse(*recording);
  ASSERT_TRUE(course.ok());
  uint64_t highest = 0;
  for (const Iteration& iteration : *FindIterations(*recording)) {
    if (iteration.process == course->process && iteration.device == course->device &&
        iteration.number > 0)
      highest = std::max(highest, iteration.peak_allocated);
  }
  EXPECT_EQ(course->peak_bytes, highest);
  EXPECT_DOUBLE_EQ(std::accumulate(course->categories.begin(), course->categories.end(), 0.0),
                   static_cast<double>(highest));
}

INSTANTIATE_TEST_SUITE_P(Seeds, CourseTest, ::testing::Range(1u, 6u));

}  // namespace
}  // namespace vramscope::query
