// SPDX-License-Identifier: Apache-2.0 Unrecorded processes allocate and free memory of the same
// GPU, also while readings price a call. Recorded ones begin at the same time. The kernel module
// has memory for each context. NVML's figure of the process then says what is its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "resolve/price/device_builder.h"

namespace vramscope::resolve::price {
namespace {

using ::testing::Contains;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr char kSecond[] = "1 context: cuCtxCreate";
constexpr char kRm[] = "RM-internal";

class FiguresTest : public ::testing::Test {
 protected:
  FiguresTest() { process_ = device_.AddProcess(); }
  // The list of processes: of this one, where it is listed, and of another one.
  void Figures(int64_t own, int64_t other) {
    if (!listed_)
      return;
    if (own != 0)
      device_.Figure(own);
    device_.OtherFigure(other);
  }
  // The process has a context of 500 MiB, and the kernel module 10 MiB for it. Others had `before`
  // before it was made, and `after` after it.
  void Context(int64_t before, int64_t after) {
    device_.Sample(before);
    Figures(0, before);
    device_.Context(0xc0);
    device_.Reading(510 + after);
    device_.Sample(510 + after);
    Figures(500, after);
  }
  // What the process has by the last figure of it.
  int64_t OfProcess(uint32_t process = 0) {
    const DevicePrices prices = device_.Prices();
    int64_t bytes = 0;
    for (size_t i = 0; i < prices.figures.size(); ++i) {
      if (device_.input().figures[i].process == process)
        bytes = prices.figures[i].ledger_bytes;
    }
    return bytes / kMiB;
  }

  DeviceBuilder device_;
  uint32_t process_ = 0;
  bool listed_ = true;
};

// ---- the kernel module

TEST_F(FiguresTest, WhatTheFigureLacksIsTheKernelModules) {
  device_.Sample(10);
  device_.Context(0xc0);
  device_.Reading(510);
  device_.Sample(510);
  device_.Figure(495);
  device_.Moved(2);
  device_.Sample(512);
  device_.Figure(497);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair(kOthers, 10), Pair(kRm, 5), Pair(kContext, 495)));
  EXPECT_EQ(OfProcess(), 497);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(FiguresTest, TheKernelModulesPartOfTwoContextsIsOneRow) {
  device_.Sample(10);
  device_.Context(0xc0);
  device_.Reading(510);
  device_.Sample(510);
  device_.Figure(491);
  device_.Context(0xc1);
  device_.Reading(1000);
  device_.Sample(1000);
  device_.Figure(977);
  EXPECT_EQ(device_.Rows()[kRm], 13);
  device_.Destroy(0xc1);
  EXPECT_EQ(device_.Rows()[kRm], 13);
  device_.Destroy(0xc0);
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 10)));
}

TEST_F(FiguresTest, AFigureDuringACallOfTheProcessSaysNothing) {
  device_.Sample(10);
  device_.Context(0xc0);
  device_.Reading(510);
  device_.Sample(510);
  const int64_t begin_ns = device_.now_ns();
  device_.Figure(100);
  device_.Moved(2).when.begin_ns = begin_ns - 1;
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kOthers, 10), Pair(kContext, 500)));
}

// Without other processes, a difference that cannot be the kernel module's stays.
TEST_F(FiguresTest, WhereNobodyElseIsReadingsStand) {
  device_.Sample(0);
  device_.Context(0xc0);
  device_.Reading(500);
  device_.Sample(500);
  device_.Figure(520);
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kContext, 500)));
}

// ---- processes at the same time

TEST_F(FiguresTest, ContextsMadeAtOnceAreToldApart) {
  const uint32_t second = device_.AddProcess();
  device_.Sample(0);
  device_.In(process_);
  device_.Context(0xc0);
  device_.In(second);
  device_.Context(0xc1);
  device_.Sample(150);
  device_.In(process_);
  device_.Reading(600);
  device_.Sample(700);
  device_.Reading(800);  // the other's grows further without calls
  device_.In(second);
  device_.Reading(1010);
  device_.Sample(1010);
  EXPECT_EQ(device_.Rows()[kSecond], 1010);
  EXPECT_EQ(device_.Prices().reading_offset, 0);
  EXPECT_EQ(device_.WorstResidual(), 0);
  device_.In(process_);
  device_.Figure(500);
  device_.In(second);
  device_.Figure(500);
  device_.Moved(20);
  device_.Figure(520);
  device_.Sample(1030);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair(kContext, 500), Pair(kSecond, 500), Pair(kRm, 10)));
  EXPECT_EQ(OfProcess(0), 500);
  EXPECT_EQ(OfProcess(1), 520);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(FiguresTest, ContextsMadeAtOnceBesideOneThatGivesBack) {
  const uint32_t second = device_.AddProcess();
  device_.Sample(1000);
  Figures(0, 1000);
  device_.In(process_);
  device_.Context(0xc0);
  device_.In(second);
  device_.Context(0xc1);
  device_.In(process_);
  device_.Reading(1300);
  device_.In(second);
  device_.Reading(1320);  // 1000 of theirs, 700 less of others
  device_.Sample(1320);
  Figures(500, 300);
  device_.In(process_);
  Figures(500, 300);
  device_.Moved(20);
  device_.Sample(1340);
  Figures(520, 300);
  EXPECT_EQ(OfProcess(0), 520);
  EXPECT_EQ(OfProcess(1), 500);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

// ---- unrecorded processes

TEST_F(FiguresTest, WhatAnotherTakesMeanwhileIsNotTheContexts) {
  Context(1000, 1300);
  // With the kernel module's.
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kContext, 500), Pair(kOthers, 1310)));
  const DevicePrices prices = device_.Prices();
  for (const Counter& counter : prices.counters)
    EXPECT_TRUE(counter.corrected);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(FiguresTest, WhatAnotherGivesBackMeanwhileDoesNotHideTheContext) {
  Context(1000, 800);
  EXPECT_EQ(device_.Rows()[kContext], 500);
}

TEST_F(FiguresTest, ByHoweverLittleAContextIsNotLessThanItsFigure) {
  Context(1000, 989);
  EXPECT_EQ(device_.Rows()[kContext], 500);
  EXPECT_EQ(OfProcess(), 500);
}

TEST_F(FiguresTest, AContextIsThereThoughTheDeviceSank) {
  Context(1000, 0);
  EXPECT_EQ(device_.Rows()[kContext], 500);
  EXPECT_EQ(OfProcess(), 500);
}

TEST_F(FiguresTest, AContextIsThereThoughNothingShowed) {
  Context(1000, 490);
  EXPECT_EQ(device_.Rows()[kContext], 500);
}

TEST_F(FiguresTest, WhatOthersGotLaterAndGaveBackIsNoRowOfAnybody) {
  Context(1000, 1000);
  device_.Sample(1710);  // 200 more
  Figures(500, 1200);
  device_.Launch("k");        // takes 92
  device_.Reading(510 + 92);  // and nothing is left of theirs
  device_.Sample(510 + 92);
  Figures(592, 0);
  device_.Moved(20);
  device_.Sample(530 + 92);
  Figures(612, 0);
  EXPECT_EQ(OfProcess(), 612);
  EXPECT_EQ(device_.Rows()[kContext], 500);
  EXPECT_EQ(device_.Rows()["first launches (code, local memory): cuLaunchKernel k"], 92);
}

// Up and down all the time, by more than anything that is priced here.
TEST_F(FiguresTest, OneThatBreathes) {
  int64_t other = 1000;
  const auto breathe = [&] { return other = other == 1000 ? 1700 : 1000; };
  Context(1000, breathe());
  int64_t own = 500;
  for (int i = 0; i < 20; ++i) {
    device_.Moved(20);
    device_.Reading(own + 10 + 20 + breathe());
    device_.Module(std::to_string(i));
    own += 20 + 4;
    if (i % 3 != 0)
      breathe();
    device_.Reading(own + 10 + other);
    breathe();
    device_.Sample(own + 10 + other);
    Figures(own, other);
  }
  EXPECT_EQ(OfProcess(), own);
  auto rows = device_.Rows();
  EXPECT_EQ(rows[kContext], 500);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(rows["module code and globals: cuModuleLoadData " + std::to_string(i)], 4) << i;
}

// The other's memory may belong to either of two calls: a figure between them is compared with both
// cases.
TEST_F(FiguresTest, WhatMayHaveBeenAnotherCallsIsComparedWithBoth) {
  Context(1000, 1000);
  EXPECT_TRUE(device_.Prices().has_others);
  device_.Launch("a");
  device_.Reading(1602);
  const int64_t begin_ns = device_.now_ns();
  const size_t between = device_.input().figures.size();
  device_.Figure(592);
  device_.Moved(0).when.begin_ns = begin_ns - 1;
  device_.Launch("b");
  device_.Reading(1652);  // 50 are the other's
  device_.Figure(592);
  const DevicePrices prices = device_.Prices();
  const Compared& compared = prices.figures[between];
  EXPECT_EQ(compared.ledger_bytes, 542 * kMiB);
  EXPECT_EQ(compared.high_bytes, 50 * kMiB);
  EXPECT_EQ(compared.low_bytes, 0);
  EXPECT_EQ(prices.figures.back().high_bytes, 0);
  EXPECT_EQ(OfProcess(), 592);
}

TEST_F(FiguresTest, WhatAnotherTakesDoesNotHideWhatACallGivesBack) {
  Context(1000, 1000);
  device_.Module("m");
  device_.Reading(1578);
  device_.Figure(568);
  device_.Implicit(format::Part::kCode, "cuModuleUnload");
  device_.Reading(1610);  // the other took 100
  device_.Sample(1610);
  Figures(500, 1100);
  EXPECT_EQ(OfProcess(), 500);
  auto rows = device_.Rows();
  EXPECT_EQ(rows.count("module code and globals: cuModuleLoadData m"), 0u);
  EXPECT_EQ(rows[kContext], 500);
  EXPECT_EQ(rows[kOthers], 1100);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

// NVML lists processes less often than it reads the device.
TEST_F(FiguresTest, AnotherProcessIsSeenBeforeTheFirstListOfProcesses) {
  device_.Sample(0);
  device_.Context(0xc0);
  device_.Reading(510);
  device_.Sample(510);
  const int64_t came_ns = device_.Sample(1010).when.time_ns;
  device_.Sample(1010);
  Figures(500, 500);
  device_.Sample(1074);
  device_.Sample(1074);
  EXPECT_EQ(device_.Rows(came_ns)[kOthers], 500);
  EXPECT_EQ(device_.Rows()[kOthers], 564);
  EXPECT_EQ(device_.WorstResidual(), 0);
}

// As a whole the calls are right, but not one by one: a figure between them says so. Whether it was
// "c" or "d" that took what "b" did not, it does not say.
TEST_F(FiguresTest, AFigureDuringACallSaysWhatCameBeforeIt) {
  Context(1000, 1000);
  device_.Launch("a");
  device_.Reading(1602);
  device_.Launch("b");
  device_.Reading(1906);  // 300 are the other's
  device_.Launch("c");
  const size_t between = device_.input().figures.size();
  device_.Figure(596);
  device_.Reading(1908);
  device_.Launch("d");
  device_.Reading(2008);  // and it gave them back
  device_.Figure(998);
  const Compared compared = device_.Prices().figures[between];
  EXPECT_LE(compared.ledger_bytes - compared.low_bytes, 596 * kMiB);
  EXPECT_GE(compared.ledger_bytes + compared.high_bytes, 596 * kMiB);
  EXPECT_EQ(OfProcess(), 998);
  const std::string launch = "first launches (code, local memory): cuLaunchKernel ";
  auto rows = device_.Rows();
  EXPECT_EQ(rows[launch + "a"], 92);
  EXPECT_EQ(rows[launch + "b"], 4);
  EXPECT_EQ(rows[launch + "c"] + rows[launch + "d"], 402);
}

TEST_F(FiguresTest, AFigureDuringACallSaysWhatCameBehindIt) {
  Context(1000, 1000);
  device_.Launch("a");
  device_.Reading(1602);
  device_.Launch("b");
  device_.Reading(1702);  // took 400; the other's 300 hide part of it
  device_.Launch("c");
  const size_t between = device_.input().figures.size();
  device_.Figure(994);
  device_.Reading(1704);
  device_.Launch("d");
  device_.Reading(2006);  // 300 are the other's
  device_.Figure(996);
  const Compared compared = device_.Prices().figures[between];
  EXPECT_LE(compared.ledger_bytes - compared.low_bytes, 994 * kMiB);
  EXPECT_GE(compared.ledger_bytes + compared.high_bytes, 994 * kMiB);
  EXPECT_EQ(OfProcess(), 996);
  EXPECT_EQ(device_.Rows()["first launches (code, local memory): cuLaunchKernel d"], 2);
}

// The launch that the first figure was corrected by is as right as that figure.
TEST_F(FiguresTest, ACorrectedFigureStays) {
  Context(1000, 1000);
  device_.Launch("a");
  device_.Reading(1902);  // 300 are the other's
  const size_t between = device_.input().figures.size();
  Figures(592, 1300);
  device_.Launch("b");
  device_.Reading(1984);  // 80 are
  Figures(594, 1380);
  device_.Sample(1984);
  EXPECT_EQ(device_.Prices().figures[between].ledger_bytes, 592 * kMiB);
  EXPECT_EQ(OfProcess(), 594);
  const std::string launch = "first launches (code, local memory): cuLaunchKernel ";
  auto rows = device_.Rows();
  EXPECT_EQ(rows[launch + "a"], 92);
  EXPECT_EQ(rows[launch + "b"], 2);
}

// What others gave back in the call does not make less of what the process may have taken by then.
TEST_F(FiguresTest, AFigureDuringACallIsComparedWithTheProcesssOwnBytes) {
  Context(1000, 1000);
  const int64_t begin_ns = device_.now_ns();
  const size_t during = device_.input().figures.size();
  device_.Figure(900);
  device_.Launch("b").when.begin_ns = begin_ns - 1;
  device_.Reading(1610);  // took 400; the other's 300 hide part of it
  device_.Launch("d");
  device_.Reading(1912);  // 300 are the other's
  device_.Figure(902);
  const Compared compared = device_.Prices().figures[during];
  EXPECT_EQ(compared.ledger_bytes, 500 * kMiB);
  EXPECT_EQ(compared.high_bytes, 400 * kMiB);
  EXPECT_EQ(OfProcess(), 902);
}

TEST_F(FiguresTest, MemoryOfOthersBetweenAReadingAndASampleIsNoConstant) {
  device_.Sample(1000);
  Figures(0, 1000);
  device_.Context(0xc0);
  Figures(500, 1000);
  device_.Reading(1510);
  device_.Sample(1000);  // the other gave 510 back
  Figures(500, 490);
  device_.Moved(20);
  device_.Sample(1020);
  EXPECT_EQ(device_.Rows()[kContext], 500);
  EXPECT_FALSE(device_.Prices().reading_offset.has_value());
}

TEST_F(FiguresTest, MemoryOfOthersThatLivesAroundReadingsIsNoConstant) {
  Context(1000, 1000);
  for (const int64_t other : {1262, 1262, 1262, 1300}) {
    device_.Sample(1510);
    device_.Launch("k");
    device_.Reading(510 + other);
    device_.Sample(1510);
    Figures(500, 1000);
  }
  EXPECT_EQ(device_.Prices().reading_offset, 0);
  EXPECT_EQ(OfProcess(), 500);
}

TEST_F(FiguresTest, AFigureThatComesLateIsMadeGood) {
  device_.Sample(1000);
  Figures(0, 1000);
  device_.Context(0xc0);
  device_.Reading(1210);
  device_.Sample(1210);
  Figures(140, 700);  // of a moment before
  device_.Moved(20);
  device_.Sample(1230);
  Figures(520, 700);
  device_.Moved(20);
  device_.Sample(1250);
  Figures(540, 700);
  EXPECT_EQ(OfProcess(), 540);
  EXPECT_EQ(device_.Rows()[kContext], 500);
}

// A process that is killed gives its memory back bit by bit, and NVML sees it.
TEST_F(FiguresTest, FiguresOfAProcessThatEndsSayNothing) {
  Context(1000, 1000);
  device_.Launch("k");
  device_.Reading(1602);
  device_.Sample(1102);
  Figures(100, 1000);
  const int64_t before_ns = device_.now_ns() - 1;
  device_.End();
  EXPECT_EQ(device_.Rows(before_ns)[kContext], 500);
}

// In a container NVML lists nothing, or other numbers: then nothing is known but the readings.
TEST_F(FiguresTest, WithoutFiguresTheReadingsStand) {
  listed_ = false;
  Context(1000, 1300);
  EXPECT_THAT(device_.Rows(), UnorderedElementsAre(Pair(kContext, 810), Pair(kOthers, 1000)));
}

TEST_F(FiguresTest, WithOtherProcessesFiguresAloneTheReadingsStand) {
  device_.Sample(1000);
  Figures(0, 1000);
  device_.Context(0xc0);
  device_.Reading(1810);
  device_.Sample(1810);
  Figures(0, 1800);
  EXPECT_EQ(device_.Rows()[kContext], 810);
}

// ---- recordings that begin in a process under way

TEST_F(FiguresTest, WhatStoodBeforeIsARow) {
  device_.Sample(1600);
  device_.Figure(700);
  device_.Late();
  device_.Moved(20).from_before = true;
  device_.Moved(20).from_before = true;
  device_.Sample(1600);
  device_.Module("m");
  device_.Reading(1604);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair("before recording", 660), Pair(kOthers, 900),
                                   Pair("module code and globals: cuModuleLoadData m", 4)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(FiguresTest, TheFigureMayComeLater) {
  device_.Late();
  device_.Moved(20).from_before = true;
  device_.Sample(1600);
  device_.Figure(700);
  device_.Sample(1600);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair("before recording", 680), Pair(kOthers, 900)));
}

TEST_F(FiguresTest, SamplingMayBeginWithTheFigure) {
  device_.Late();
  device_.Moved(20).from_before = true;
  device_.Figure(700);
  device_.Sample(1600);
  device_.Sample(1600);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair("before recording", 680), Pair(kOthers, 900)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(FiguresTest, BeforeTheFirstFigureItWasThereToo) {
  device_.Late();
  const int64_t moved_ns = device_.Moved(20).when.time_ns;
  device_.Figure(700);
  device_.Sample(709);
  EXPECT_EQ(device_.Rows(moved_ns)["before recording"], 680);
  EXPECT_EQ(device_.Rows(moved_ns)["RM-internal"], 9);
}

TEST_F(FiguresTest, AnEarlierSampleHasItAsOthersMemory) {
  device_.Late();
  const int64_t moved_ns = device_.Moved(20).when.time_ns;
  device_.Sample(1600);
  device_.Figure(700);
  device_.Sample(1600);
  EXPECT_EQ(device_.Rows(moved_ns)["before recording"], 0);
  EXPECT_EQ(device_.Rows()["before recording"], 680);
}

TEST_F(FiguresTest, WhatIsAllocatedBetweenTheFiguresIsNobodyElses) {
  device_.Late();
  device_.Figure(700);
  device_.Moved(32);
  device_.Sample(741);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair("before recording", 700), Pair("RM-internal", 9)));
}

TEST_F(FiguresTest, ACallUnderWayIsNobodyElsesMemory) {
  device_.Late();
  device_.Figure(700);
  DeviceSample& during = device_.Sample(741);
  Move& move = device_.Moved(32);
  move.when.begin_ns = during.when.begin_ns - 1000;
  device_.Sample(741);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair("before recording", 700), Pair("RM-internal", 9)));
}

// Seen on an H200: a server's requests of 32 MiB, one of them while `attach` read its first
// figures.
TEST_F(FiguresTest, ACallUnderWayAtTheFirstFigureIsNotFromBefore) {
  device_.Late();
  const int64_t first_ns = device_.Figure(732).when.begin_ns;
  device_.Sample(741);
  Move& move = device_.Moved(32);
  move.when.begin_ns = first_ns - 1000;
  device_.Moved(-32);
  device_.Figure(700);
  device_.Sample(709);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair("before recording", 700), Pair("RM-internal", 9)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(FiguresTest, AFreeUnderWayAtTheFirstFigureIsNotFromBefore) {
  device_.Late();
  device_.Moved(32).from_before = true;
  Move& freed = device_.Moved(-32);
  freed.from_before = true;
  device_.Figure(732);
  freed.when.end_ns = device_.Sample(741).when.end_ns + 1000;
  device_.Figure(700);
  device_.Sample(709);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair("before recording", 700), Pair("RM-internal", 9)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

// The driver had not taken the memory yet.
TEST_F(FiguresTest, ACallUnderWayAtTheFirstFigureMayTakeItsMemoryLater) {
  device_.Late();
  const int64_t first_ns = device_.Figure(700).when.begin_ns;
  device_.Sample(709);
  Move& move = device_.Moved(32);
  move.when.begin_ns = first_ns - 1000;
  device_.Figure(732);
  device_.Sample(741);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair("before recording", 700), Pair("RM-internal", 9)));
  EXPECT_EQ(device_.WorstResidual(), 0);
}

TEST_F(FiguresTest, WhatAContextLeftInTheKernelModuleIsItsProcesses) {
  device_.Late();
  device_.Moved(20).from_before = true;
  device_.Figure(700);
  device_.Sample(709);
  EXPECT_THAT(device_.Rows(),
              UnorderedElementsAre(Pair("before recording", 680), Pair("RM-internal", 9)));
}

}  // namespace
}  // namespace vramscope::resolve::price
