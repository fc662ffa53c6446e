// SPDX-License-Identifier: Apache-2.0
// What calls took by readings of the device, also while several threads are in the driver, and what
// samples are compared with.
#include "resolve/price/price.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "resolve/price/device_builder.h"

namespace vramscope::resolve::price {
namespace {

using format::Part;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr char kKept[] = "RM-internal";

class PriceTest : public ::testing::Test {
 protected:
  PriceTest() { device_.AddProcess(); }
  // 10 MiB of others, a context of 500 MiB.
  void Context() {
    device_.Sample(10);
    device_.Context(0xc0);
    device_.Reading(510);
    device_.Sample(510);
  }
  int64_t Row(const std::string& name) { return device_.Rows()[name]; }

  DeviceBuilder device_;
};

TEST_F(PriceTest, AContextIsWhatTheReadingsAddToTheSample) {
  Context();
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 10), Pair(kContext, 500)));
  const DevicePrices prices = device_.Prices();
  EXPECT_EQ(prices.reading_offset, 0);
  EXPECT_EQ(prices.contexts_not_measured, 0u);
  EXPECT_EQ(prices.counters[1].call, 0u);
  EXPECT_EQ(prices.counters[1].context, 0xc0u);
  ASSERT_EQ(prices.unsettled.size(), 1u);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(PriceTest, WhatAppearsDuringInitIsNotSomebodyElses) {
  const int64_t before_ns = device_.Sample(10).when.end_ns;
  device_.Sample(11);
  device_.Sample(13);
  device_.Init().when.begin_ns = before_ns + 1;
  device_.Context(0xc0);
  device_.Reading(513);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair(kOthers, 10), Pair("context: cuInit + cuCtxCreate", 503)));
}

// NVML's clock and the program's are one to within 10 us.
TEST_F(PriceTest, ASampleJustBeforeInitMayBeOneDuringIt) {
  device_.Sample(10);
  const int64_t before_ns = device_.Sample(42).when.end_ns;
  device_.Init().when.begin_ns = before_ns + 5000;
  device_.Context(0xc0);
  device_.Reading(542);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair(kOthers, 10), Pair("context: cuInit + cuCtxCreate", 532)));
}

TEST_F(PriceTest, ExplicitCallsAreNotPartOfWhatReadingsShow) {
  Context();
  device_.Launch("k");
  device_.Moved(64);
  device_.Reading(510 + 64 + 92);
  device_.Implicit(Part::kStreams, "cuStreamCreate");
  device_.Module("m");
  device_.Reading(510 + 64 + 92 + 4);
  device_.Launch("free of charge");
  device_.Reading(510 + 64 + 92 + 4);
  EXPECT_THAT(
      device_.Rows(),
      UnorderedElementsAre(Pair(kOthers, 10), Pair(kContext, 500),
                           Pair("first launches (code, local memory): cuLaunchKernel k", 92),
                           Pair("several calls at once: cuStreamCreate + cuModuleLoadData m", 4)));
}

TEST_F(PriceTest, ManyTriggersAreCounted) {
  Context();
  for (const char* name : {"a", "b", "c", "d", "a", "e"})
    device_.Module(name);
  device_.Implicit(Part::kCode, "");
  device_.Reading(512);
  EXPECT_EQ(Row("module code and globals: cuModuleLoadData a + cuModuleLoadData b + "
                "cuModuleLoadData c + 3 more"),
            2);
}

TEST_F(PriceTest, MemoryStandsFromTheCallOn) {
  Context();
  const ImplicitCall launch = device_.Launch("k");
  device_.Moved(64);
  device_.Reading(510 + 64 + 92);
  EXPECT_EQ(device_.Total(launch.when.time_ns - 1), 510);
  EXPECT_EQ(device_.Total(launch.when.time_ns), 602);
}

TEST_F(PriceTest, WhatShrinksIsTakenFromRowsOfItsKindFirstAndFromTheContextLast) {
  Context();
  device_.Module("m");
  device_.Reading(514);
  device_.Implicit(Part::kLimits, "cuCtxSetLimit");
  device_.Reading(1514);
  device_.Implicit(Part::kLimits, "cuCtxSetLimit");
  device_.Reading(614);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair(kOthers, 10), Pair(kContext, 500),
                                   Pair("module code and globals: cuModuleLoadData m", 4),
                                   Pair("limits (stack, heap, printf FIFO): cuCtxSetLimit", 100)));
  device_.Implicit(Part::kStreams, "cuStreamDestroy");
  device_.Reading(504);
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 10), Pair(kContext, 494)));
}

TEST_F(PriceTest, ADestroyedContextTakesWhatIsOfIt) {
  Context();
  device_.Context(0xc1);
  device_.Reading(1010);
  device_.Module("m").context = 0xc1;
  device_.Reading(1014);
  device_.Destroy(0xc1);
  device_.Reading(510);
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 10), Pair(kContext, 500)));
  device_.Destroy(0xc0);
  device_.Sample(10);
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 10)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(PriceTest, WhatTheKernelModuleKeepsBehindTheLastContextGoesWithTheProcess) {
  device_.Sample(10);
  device_.Init();
  device_.Context(0xc0);
  device_.Reading(513);
  device_.Destroy(0xc0);
  const int64_t kept_ns = device_.Sample(13).when.time_ns;
  EXPECT_THAT(device_.Rows(kept_ns), UnorderedElementsAre(Pair(kOthers, 10), Pair(kKept, 3)));
  device_.Context(0xc1);
  device_.Reading(513);
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 10), Pair(kKept, 3),
                                                   Pair("context: cuCtxCreate", 500)));
  device_.Destroy(0xc1);
  device_.Sample(13);
  device_.End();
  device_.Sample(10);
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 10)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(PriceTest, WhatInitTakesIsKnownWhereASampleSeesItAlone) {
  device_.Sample(10);
  device_.Init();
  device_.Sample(13);
  device_.Context(0xc0);
  device_.Reading(513);
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 10), Pair(kKept, 3),
                                                   Pair("context: cuInit + cuCtxCreate", 500)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(PriceTest, ProcessesThatGaveTheirContextsBackShareWhatIsThere) {
  device_.Sample(10);
  device_.Context(0xc0);
  device_.Reading(513);
  device_.AddProcess();
  device_.Context(0xc1);
  device_.Reading(1016);
  device_.In(0);
  device_.Destroy(0xc0);
  device_.In(1);
  device_.Destroy(0xc1);
  const int64_t kept_ns = device_.Sample(16).when.time_ns;
  device_.End();
  device_.Sample(13);
  EXPECT_THAT(device_.Rows(kept_ns), UnorderedElementsAre(Pair(kOthers, 10), Pair(kKept, 6)));
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 10), Pair(kKept, 3)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

// cuInit is an event of every GPU.
TEST_F(PriceTest, AGpuThatAProcessDoesNotUseIsOthers) {
  device_.Sample(10);
  device_.Init();
  device_.Sample(13);
  device_.Sample(700);
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 700)));
  for (const SampleResult& sample : device_.Prices().samples)
    EXPECT_FALSE(sample.counted);
}

TEST_F(PriceTest, WhatComesAndGoesWhileNobodyCallsIsOthers) {
  Context();
  device_.Figure(500);
  device_.OtherFigure(100);
  device_.Sample(610);
  device_.Launch("k");
  device_.Sample(700);  // not known yet
  device_.Reading(702);
  device_.Sample(702);
  EXPECT_THAT(
      device_.Rows(),
      UnorderedElementsAre(Pair(kOthers, 110), Pair(kContext, 500),
                           Pair("first launches (code, local memory): cuLaunchKernel k", 92)));
  device_.Sample(590);
  EXPECT_THAT(
      device_.Rows(),
      UnorderedElementsAre(Pair(kContext, 500),
                           Pair("first launches (code, local memory): cuLaunchKernel k", 92)));
  EXPECT_EQ(device_.Prices().samples.back().ledger_bytes, 592 * kMiB);
}

// The thread that read what a context took was held up, while another one moved memory.
TEST_F(PriceTest, WhereNoReadingIsClearASampleInAQuietMomentSaysWhatAContextTook) {
  device_.Sample(10);
  device_.Context(0xc0).until_reading = false;
  const When reading = device_.Reading(510).when;
  device_.Moved(64).when.begin_ns = reading.begin_ns - 1;
  device_.Sample(574);
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 10), Pair(kContext, 500)));
  EXPECT_EQ(device_.WorstResidual(), 0);
  EXPECT_EQ(device_.Prices().contexts_not_measured, 0u);
}

TEST_F(PriceTest, WhereNoSampleIsQuietEitherOneIsOffByWhatIsBeingMoved) {
  device_.Sample(10);
  device_.Context(0xc0).until_reading = false;
  const When reading = device_.Reading(510).when;
  device_.Moved(64).when.begin_ns = reading.begin_ns - 1;
  const When sample = device_.Sample(576).when;
  device_.Moved(2).when.begin_ns = sample.begin_ns - 1;
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 10), Pair(kContext, 502)));
  EXPECT_EQ(device_.Prices().contexts_not_measured, 0u);
}

TEST_F(PriceTest, AContextThatNothingIsBehindIsNotMeasured) {
  device_.Sample(10);
  device_.Context(0xc0).until_reading = false;
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 10)));
  EXPECT_EQ(device_.Prices().contexts_not_measured, 1u);
}

TEST_F(PriceTest, WhatIsTooLargeToBeKeptStaysResidual) {
  Context();
  device_.Destroy(0xc0);
  device_.Sample(100);
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 10)));
  EXPECT_EQ(device_.WorstResidual(), 90 * kMiB);
}

TEST_F(PriceTest, WhatTwoSamplesHaveAndNobodyCausedIsUnexplained) {
  Context();
  device_.Sample(510);
  const int64_t since_ns = device_.Sample(510).when.begin_ns;
  device_.Reading(517);
  const int64_t first_ns = device_.Sample(517).when.end_ns;
  device_.Module("m");
  device_.Reading(519);
  EXPECT_EQ(device_.WorstResidual(), 7 * kMiB);
  device_.Sample(519);
  EXPECT_EQ(device_.WorstResidual(), 0);
  EXPECT_EQ(device_.Rows().at("unexplained"), 7);
  const DevicePrices prices = device_.Prices();
  EXPECT_EQ(prices.counters.back().came->begin_ns, since_ns);
  EXPECT_EQ(prices.counters.back().came->end_ns, first_ns);
  // It goes as it came.
  device_.Sample(512);
  device_.Sample(512);
  EXPECT_EQ(device_.Rows().count("unexplained"), 0u);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(PriceTest, WhatIsMissingStaysResidualAndIsSaidOnce) {
  Context();
  device_.Moved(100);
  device_.Sample(610);
  device_.Sample(560);
  device_.Sample(560);
  device_.Sample(560);
  EXPECT_EQ(device_.WorstResidual(), -50 * kMiB);
  ASSERT_EQ(device_.Prices().missing.size(), 1u);
  EXPECT_EQ(device_.Prices().missing[0].bytes, -50 * kMiB);
}

TEST_F(PriceTest, ASmallDifferenceStaysResidual) {
  Context();
  device_.Sample(513);
  device_.Sample(513);
  EXPECT_EQ(device_.WorstResidual(), 3 * kMiB);
}

TEST_F(PriceTest, WithoutASampleBeforeItAContextIsNotGuessed) {
  device_.Context(0xc0);
  device_.Reading(510);
  device_.Module("m");
  device_.Reading(512);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair("module code and globals: cuModuleLoadData m", 2)));
  EXPECT_EQ(device_.Prices().contexts_not_measured, 1u);
}

TEST_F(PriceTest, WithoutAReadingBehindItACallIsNotSettled) {
  Context();
  const int64_t begin_ns = device_.Module("m").when.begin_ns;
  const DevicePrices prices = device_.Prices();
  ASSERT_EQ(prices.unsettled.size(), 2u);
  EXPECT_EQ(prices.unsettled[1].begin_ns, begin_ns);
  EXPECT_EQ(prices.unsettled[1].end_ns, kNever);
}

// As if another thread allocates during the reading after each call.
TEST_F(PriceTest, WhatHappensLongAfterACallIsNotItsDoing) {
  Context();
  device_.Reading(510);
  device_.Sample(510);
  device_.Module("m");
  device_.At(device_.now_ns() + 5'000'000);
  device_.Sample(512);
  // Another process frees 100 MiB.
  device_.At(device_.now_ns() + 1'000'000'000);
  device_.Reading(412);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair(kOthers, 10), Pair(kContext, 500),
                                   Pair("module code and globals: cuModuleLoadData m", 2)));
  ASSERT_EQ(device_.Prices().unsettled.size(), 2u);
  EXPECT_LT(device_.Prices().unsettled[1].end_ns, device_.now_ns() - 900'000'000);
}

// ---- readings and samples

TEST_F(PriceTest, ReadingsMayDifferFromSamplesByAConstant) {
  device_.Sample(10);
  device_.Context(0xc0);
  device_.Reading(513);
  device_.Sample(510);
  device_.Moved(4);
  device_.Sample(514);
  device_.Module("m");
  device_.Reading(519);
  device_.Sample(516);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair(kOthers, 10), Pair(kContext, 500),
                                   Pair("module code and globals: cuModuleLoadData m", 2)));
  EXPECT_EQ(device_.Prices().reading_offset, 3 * kMiB);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

// On a busy machine it shows what was a moment before it says.
TEST_F(PriceTest, OneSampleAloneMakesNoConstant) {
  device_.Sample(10);
  device_.Context(0xc0);
  device_.Reading(510);
  device_.Implicit(Part::kStreams, "cuStreamCreate");
  device_.Reading(512);
  device_.Sample(510);
  device_.Moved(4);
  device_.Reading(516);
  EXPECT_FALSE(device_.Prices().reading_offset.has_value());
  EXPECT_EQ(device_.Rows()[kContext], 500);
}

TEST_F(PriceTest, ASampleInsideOfACallSaysNothingAboutTheConstant) {
  Context();
  device_.Context(0xc1);
  device_.Reading(1010);
  device_.Destroy(0xc1).when.end_ns = device_.now_ns() + 2 * DeviceBuilder::kStepNs;
  device_.Sample(1010);
  device_.At(device_.now_ns() + 2 * DeviceBuilder::kStepNs);
  device_.Reading(510);
  device_.Reading(510);
  device_.Moved(2);
  EXPECT_EQ(device_.Total(), 512);
  EXPECT_EQ(device_.Prices().reading_offset, 0);
}

TEST_F(PriceTest, AWrongEstimateOfAnArraySaysNothingAboutTheConstant) {
  device_.Sample(0);
  device_.Context(0xc0);
  device_.Reading(500);
  device_.Array(5);
  device_.Module("m");
  device_.Sample(508);
  device_.Reading(508);
  device_.Array(5);
  device_.Sample(514);
  EXPECT_EQ(device_.Prices().reading_offset.value_or(0), 0);
}

TEST_F(PriceTest, SamplesDuringCallsAreComparedWithAnInterval) {
  Context();
  // The allocation under way is there already; the free's memory is there still.
  const int64_t begin_ns = device_.now_ns() - 1;
  device_.Sample(574);
  device_.Moved(64).when.begin_ns = begin_ns;
  Move& free = device_.Moved(-64);
  device_.Sample(574);
  free.when.end_ns = device_.now_ns() - DeviceBuilder::kStepNs / 2;
  device_.Sample(511);
  const DevicePrices prices = device_.Prices();
  EXPECT_EQ(prices.samples[2].high_bytes, 64 * kMiB);
  EXPECT_EQ(prices.samples[3].ledger_bytes, 510 * kMiB);
  EXPECT_EQ(prices.samples[3].high_bytes, 64 * kMiB);
  EXPECT_EQ(device_.WorstResidual(), kMiB);
}

TEST_F(PriceTest, ClocksAgreeOnlyRoughly) {
  Context();
  device_.Moved(64);
  device_.Sample(510);  // without what is freed 2 us later
  device_.At(device_.now_ns() - DeviceBuilder::kStepNs + 2'000);
  device_.Moved(-64);
  device_.Sample(510);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(PriceTest, WhatIsTakenAnewMayBeGoneMeanwhile) {
  Context();
  const int64_t begin_ns = device_.now_ns();
  device_.Sample(96);
  ImplicitCall& launch = device_.Launch("deep");
  launch.when.begin_ns = begin_ns - 1;
  launch.reallocates = true;
  device_.Reading(600);
  device_.Sample(600);
  EXPECT_EQ(device_.WorstResidual(), 0);
  EXPECT_EQ(device_.Prices().samples[2].low_bytes, 500 * kMiB);
}

// ---- several threads

TEST_F(PriceTest, AReadingDuringACallPricesNothing) {
  Context();
  device_.Module("a");
  device_.Reading(512);
  // From here on another thread is inside of an allocation, which all three readings show.
  const int64_t begin_ns = device_.now_ns();
  device_.Launch("k");
  device_.Reading(512 + 64 + 4);
  device_.Reading(516 + 64);
  device_.Launch("l");
  device_.Reading(516 + 64 + 6);
  device_.Moved(64).when.begin_ns = begin_ns;
  device_.Reading(522 + 64);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair(kOthers, 10), Pair(kContext, 500),
                                   Pair("module code and globals: cuModuleLoadData a", 2),
                                   Pair("first launches (code, local memory): cuLaunchKernel k + "
                                        "cuLaunchKernel l",
                                        10)));
  EXPECT_EQ(device_.Total(), 586);
}

// At the end it is better than none, if nothing but implicit calls was under way.
TEST_F(PriceTest, TheLastReadingPricesWhatItShowsOfCallsThatGoOn) {
  Context();
  const int64_t begin_ns = device_.now_ns();
  device_.Reading(514);
  device_.Reading(516);
  device_.Module("big").when.begin_ns = begin_ns - 1;
  EXPECT_EQ(Row("module code and globals: cuModuleLoadData big"), 6);
  device_.Reading(517);
  EXPECT_EQ(Row("module code and globals: cuModuleLoadData big"), 7);
}

TEST_F(PriceTest, TheLastReadingDuringAnAllocationPricesNothing) {
  Context();
  device_.Module("a");
  const int64_t begin_ns = device_.now_ns();
  device_.Reading(512 + 64);
  device_.Moved(64).when.begin_ns = begin_ns - 1;
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 10), Pair(kContext, 500)));
}

// ---- arrays

TEST_F(PriceTest, AnArrayIsWhatTheReadingBehindItShows) {
  Context();
  const uint32_t array = device_.Array(5);
  EXPECT_EQ(device_.Prices().arrays[array].bytes, 5 * kMiB);
  EXPECT_FALSE(device_.Prices().arrays[array].by_readings);
  device_.Reading(516);
  EXPECT_EQ(device_.Prices().arrays[array].bytes, 6 * kMiB);
  EXPECT_TRUE(device_.Prices().arrays[array].by_readings);
  EXPECT_EQ(device_.Total(), 516);
}

TEST_F(PriceTest, OrTheReadingBehindItsFree) {
  Context();
  const uint32_t array = device_.Array(5);
  device_.Module("a");
  device_.Reading(510 + 6 + 3);
  EXPECT_EQ(Row("module code and globals: cuModuleLoadData a"), 4);
  device_.FreeArray(array, 5);
  device_.Reading(510 + 3);
  EXPECT_EQ(device_.Prices().arrays[array].bytes, 6 * kMiB);
  EXPECT_EQ(Row("module code and globals: cuModuleLoadData a"), 3);
  EXPECT_EQ(device_.Total(), 513);
}

TEST_F(PriceTest, ArraysThatWerePricedTogetherAreToldApartWhenOneGoes) {
  Context();
  const uint32_t first = device_.Array(5);
  const uint32_t second = device_.Array(5);
  device_.Reading(510 + 14);
  EXPECT_EQ(device_.Prices().arrays[first].bytes, 7 * kMiB);
  EXPECT_EQ(device_.Prices().arrays[second].bytes, 7 * kMiB);
  device_.FreeArray(first, 5);
  device_.Reading(510 + 8);
  EXPECT_EQ(device_.Prices().arrays[first].bytes, 6 * kMiB);
  EXPECT_EQ(device_.Prices().arrays[second].bytes, 8 * kMiB);
  EXPECT_EQ(device_.Total(), 518);
}

TEST_F(PriceTest, AnArrayThatCameAndWentBetweenReadingsKeepsItsEstimate) {
  Context();
  const uint32_t gone = device_.Array(5);
  const uint32_t stays = device_.Array(5);
  device_.FreeArray(gone, 5);
  device_.Reading(516);
  EXPECT_EQ(device_.Prices().arrays[gone].bytes, 5 * kMiB);
  EXPECT_EQ(device_.Prices().arrays[stays].bytes, 6 * kMiB);
}

TEST_F(PriceTest, AFigureOfLessThanNothingIsNoArrays) {
  Context();
  const uint32_t array = device_.Array(5);
  device_.Reading(400);
  EXPECT_EQ(device_.Prices().arrays[array].bytes, 5 * kMiB);
}

// ---- ends

TEST_F(PriceTest, TheDriverTakesAllBackBetweenTeardownAndTheEnd) {
  Context();
  device_.Moved(20);
  device_.Teardown();
  device_.Sample(10);
  device_.End();
  device_.Sample(20);  // somebody else's
  EXPECT_EQ(device_.WorstResidual(), 0);
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 20)));
  EXPECT_FALSE(device_.Prices().samples[3].counted);
}

TEST_F(PriceTest, AReadingAfterTeardownIsClearUntilTheLastCall) {
  Context();
  device_.Teardown();
  device_.Module("late");
  device_.Reading(512);
  device_.Moved(2);
  const int64_t before_ns = device_.now_ns();
  device_.End();
  EXPECT_EQ(device_.Rows(before_ns - 1)["module code and globals: cuModuleLoadData late"], 2);
}

TEST_F(PriceTest, TheNextProcessBeginsAnew) {
  Context();
  device_.End();
  device_.Sample(30);
  device_.AddProcess();
  device_.Context(0xc1);
  device_.Reading(430);
  device_.Sample(430);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair(kOthers, 30), Pair("1 " + std::string(kContext), 400)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

// No sample between them is needed: the readings continue.
TEST_F(PriceTest, ReadingsGoOnOverTheEndOfAProcess) {
  Context();
  device_.Moved(20);
  device_.End();
  device_.AddProcess();
  device_.Context(0xc1);
  device_.Reading(410);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair(kOthers, 10), Pair("1 " + std::string(kContext), 400)));
}

// A process begins while the one before may still have its memory: none of its readings is clear,
// nor is one of the next. Samples say what each one's calls took.
TEST_F(PriceTest, ProcessesInARowAreEachPricedByTheirSamples) {
  constexpr int64_t kEndsWithinNs = 10 * DeviceBuilder::kStepNs;
  Context();
  device_.End(kEndsWithinNs);
  for (const int64_t size : {400, 300, 200}) {
    const uint32_t process = device_.AddProcess();
    device_.Sample(10);
    device_.Context(0xc0u + process);
    device_.Reading(10 + size);
    device_.Moved(20);
    device_.At(device_.now_ns() + kEndsWithinNs);
    const int64_t at_ns = device_.Sample(30 + size).when.time_ns;
    device_.Sample(30 + size);
    EXPECT_THAT(device_.Rows(at_ns),
                UnorderedElementsAre(Pair(kOthers, 10),
                                     Pair(std::to_string(process) + " " + kContext, size)));
    device_.End(kEndsWithinNs);
  }
  EXPECT_EQ(device_.WorstResidual(), 0);
  EXPECT_EQ(device_.Prices().contexts_not_measured, 0u);
}

// Another thread reads first that a pool has shrunk, a while behind the call in which it did.
TEST_F(PriceTest, WhatAPoolGaveBackIsNotMissingUntilAThreadReadsIt) {
  Context();
  device_.Moved(64);
  device_.Sample(574);
  device_.Sample(510);
  device_.Sample(510);
  device_.Sample(510);
  device_.Moved(-64);
  EXPECT_THAT(device_.Prices().missing, IsEmpty());
  device_.Sample(510);
  EXPECT_THAT(device_.Prices().missing, IsEmpty());
  device_.Sample(510);
  EXPECT_THAT(device_.Prices().missing, IsEmpty());
}

// A process initializes the driver for all GPUs. On one that it does not use it has no context,
// whichever process's reading shows it.
TEST_F(PriceTest, InitAloneIsTheKernelModulesOnAGpuThatOthersUse) {
  Context();
  device_.AddProcess();
  device_.Init();
  device_.In(0);
  device_.Reading(513);
  device_.Sample(513);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair(kOthers, 10), Pair(kContext, 500), Pair(kKept, 3)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

// A process that lives shorter than the memory of the one before: the only sample is after the
// earlier one's end.
TEST_F(PriceTest, AShortProcessBehindAnotherIsPriced) {
  constexpr int64_t kEndsWithinNs = 100 * DeviceBuilder::kStepNs;
  Context();
  device_.End(kEndsWithinNs);
  device_.AddProcess();
  device_.Context(0xc1);
  device_.Reading(410);
  const int64_t at_ns = device_.Sample(410).when.time_ns;
  device_.Moved(20);
  device_.End(kEndsWithinNs);
  EXPECT_THAT(device_.Rows(at_ns),
              UnorderedElementsAre(Pair(kOthers, 10), Pair("1 " + std::string(kContext), 400)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(PriceTest, NothingComesOfNothing) {
  EXPECT_THAT(PriceDevice({}).steps, IsEmpty());
  device_.Sample(7);
  device_.Sample(9);
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 9)));
  EXPECT_EQ(device_.Prices().samples[0].ledger_bytes, 7 * kMiB);
}

// Its only reading came while the previous process's memory might still have been there, and the
// next reading is another process's.
TEST_F(PriceTest, AProcessThatIsGoneAtTheNextReadingIsPricedByASample) {
  constexpr int64_t kLateExitNs = 100'000'000;
  device_.Sample(0);
  device_.Context(0xc0);
  device_.Reading(500);
  device_.Sample(500);
  device_.End(kLateExitNs);
  device_.Sample(0);
  device_.AddProcess();
  device_.Context(0xc1);
  device_.Reading(510);
  device_.Moved(20);
  device_.At(device_.now_ns() + kLateExitNs);
  const int64_t second_ns = device_.Sample(530).when.time_ns;
  device_.End(kLateExitNs);
  device_.AddProcess();
  device_.Context(0xc2);
  device_.Reading(520);
  device_.At(device_.now_ns() + kLateExitNs);
  device_.Sample(520);
  device_.Reading(520);
  EXPECT_EQ(device_.Rows(second_ns)["1 " + std::string(kContext)], 510);
  EXPECT_EQ(device_.Rows()["2 " + std::string(kContext)], 520);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

}  // namespace
}  // namespace vramscope::resolve::price
