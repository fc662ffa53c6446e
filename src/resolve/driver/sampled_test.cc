// SPDX-License-Identifier: Apache-2.0
#include "resolve/driver/sampled.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"

namespace vramscope::resolve {
namespace {

using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

using price::Counter;
using price::DeviceInput;
using price::DevicePrices;
using price::kNever;
using price::kNone;
using price::Step;
using price::When;

constexpr char kOthers[] = "other processes";
constexpr char kBefore[] = "before the start";

class SampledTest : public ::testing::Test {
 protected:
  SampledTest() { input_.processes.resize(2); }

  void Sample(int64_t used) { input_.samples.push_back({Next(), used * int64_t{kMiB}}); }
  // A list: of the command's processes 0 and 1 where they are in it, and of another one.
  void List(int64_t first, int64_t second, int64_t other) {
    const When when = Next();
    const auto add = [&](uint32_t process, int64_t mib) {
      if (mib >= 0)
        input_.figures.push_back(
            {{now_ns_++, when.begin_ns, when.end_ns}, process, mib * int64_t{kMiB}});
    };
    add(0, first);
    add(1, second);
    add(kNone, other);
  }
  // MiB after the last sample, or after that one: "0 sampled" is of process 0, "sampled" of none.
  std::map<std::string, int64_t> Rows(size_t sample = SIZE_MAX) const {
    const DevicePrices prices = PriceSampledDevice(input_);
    const int64_t until_ns =
        sample < input_.samples.size() ? input_.samples[sample].when.time_ns : kNever;
    std::map<std::string, int64_t> rows;
    for (const Step& step : prices.steps) {
      const Counter& counter = prices.counters[step.counter];
      std::string name = counter.process == kNone ? "" : std::to_string(counter.process) + " ";
      name += PartName(counter.part);
      if (step.when.time_ns <= until_ns)
        rows[name] += step.bytes;
    }
    std::erase_if(rows, [](const auto& row) { return row.second == 0; });
    for (auto& [name, bytes] : rows)
      bytes /= int64_t{kMiB};
    return rows;
  }
  When Next() {
    const When when{now_ns_, now_ns_, now_ns_};
    now_ns_ += 1'000'000;
    return when;
  }

  DeviceInput input_;
  int64_t now_ns_ = 1'000'000'000;
};

TEST_F(SampledTest, WhatComesAfterTheStartIsTheCommands) {
  Sample(300);
  List(-1, -1, 200);
  Sample(300);
  Sample(800);
  List(490, -1, 200);
  Sample(900);
  EXPECT_THAT(Rows(1), UnorderedElementsAre(Pair(kOthers, 200), Pair(kBefore, 100)));
  // It had that before any list had it.
  EXPECT_THAT(Rows(2),
              UnorderedElementsAre(Pair(kOthers, 200), Pair(kBefore, 100), Pair("0 sampled", 500)));
  EXPECT_THAT(Rows(),
              UnorderedElementsAre(Pair(kOthers, 200), Pair(kBefore, 100), Pair("0 sampled", 600)));
}

TEST_F(SampledTest, OnAnEmptyMachineTheFirstListIsNoBaseline) {
  Sample(10);
  Sample(10);
  Sample(500);
  List(480, -1, -1);
  Sample(510);
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair(kBefore, 10), Pair("0 sampled", 500)));
}

TEST_F(SampledTest, AProcessUnderWayHasWhatItHad) {
  Sample(700);
  List(490, -1, 200);
  Sample(700);
  for (const size_t sample : {size_t{0}, size_t{1}}) {
    EXPECT_THAT(Rows(sample), UnorderedElementsAre(Pair(kOthers, 200), Pair(kBefore, 10),
                                                   Pair("0 sampled", 490)));
  }
}

TEST_F(SampledTest, ASpikeBetweenTwoListsIsTheProcesss) {
  Sample(0);
  Sample(0);
  Sample(500);
  List(500, -1, -1);
  Sample(4000);
  Sample(500);
  List(500, -1, -1);
  EXPECT_THAT(Rows(3), UnorderedElementsAre(Pair("0 sampled", 4000)));
}

TEST_F(SampledTest, OneThatFollowsAnotherBeginsWhereThereIsLeast) {
  Sample(0);
  Sample(0);
  Sample(500);
  List(500, -1, -1);
  Sample(600);
  Sample(20);
  Sample(900);
  List(0, 890, -1);
  Sample(900);
  EXPECT_THAT(Rows(3), UnorderedElementsAre(Pair("0 sampled", 600)));
  EXPECT_THAT(Rows(5), UnorderedElementsAre(Pair("1 sampled", 900)));
}

TEST_F(SampledTest, OfSeveralAtOnceEachHasItsLastFigure) {
  Sample(0);
  Sample(0);
  Sample(700);
  List(300, 400, -1);
  Sample(1000);
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair("0 sampled", 300), Pair("1 sampled", 400),
                                           Pair("sampled", 300)));
}

TEST_F(SampledTest, WhereNoListHasItTheCommandHasAllThatCame) {
  Sample(100);
  Sample(100);
  Sample(600);
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair(kBefore, 100), Pair("0 sampled", 500)));
}

TEST_F(SampledTest, WhatSomebodyElseGaveBackIsNotNegative) {
  Sample(1000);
  List(-1, -1, 900);
  Sample(1000);
  Sample(50);
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair(kOthers, 50)));
  List(-1, -1, 0);
  Sample(50);
  EXPECT_THAT(Rows(), UnorderedElementsAre(Pair(kBefore, 50)));
}

TEST_F(SampledTest, TheRowsAddUpToEverySample) {
  const int64_t figures[] = {100, 100, 700, 650, 2000, 90, 0, 800};
  for (size_t i = 0; i < std::size(figures); ++i) {
    Sample(figures[i]);
    if (i % 2 == 0)
      List(i == 2 ? 400 : -1, i == 4 ? 300 : -1, static_cast<int64_t>(i) * 20);
  }
  for (size_t i = 0; i < std::size(figures); ++i) {
    int64_t sum = 0;
    for (const auto& [name, mib] : Rows(i)) {
      EXPECT_GT(mib, 0) << name;
      sum += mib;
    }
    EXPECT_EQ(sum, figures[i]) << i;
  }
}

TEST_F(SampledTest, WithoutAnySampleThereIsNothing) {
  List(100, -1, 100);
  EXPECT_THAT(Rows(), IsEmpty());
}

}  // namespace
}  // namespace vramscope::resolve
