// SPDX-License-Identifier: Apache-2.0
#include "record/watch/worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <new>
#include <stdexcept>
#include <thread>

namespace vramscope::cli {
namespace {

TEST(Worker, Works) {
  std::atomic<int> done = 0;
  Worker worker;
  worker.Start([&done] { done = 1; });
  EXPECT_TRUE(worker.IsStarted());
  worker.Join();
  EXPECT_EQ(done, 1);
  EXPECT_EQ(worker.failure(), "");
  EXPECT_FALSE(worker.IsStarted());
}

TEST(Worker, IsWokenToEnd) {
  std::atomic<int> rests = 0;
  Worker worker;
  worker.Stop();
  worker.Start([&] {
    while (worker.Rest(rests == 0 ? std::chrono::nanoseconds(1) : std::chrono::hours(1)))
      ++rests;
  });
  while (rests == 0)
    std::this_thread::yield();
  EXPECT_FALSE(worker.stop()) << "what was stopped before it began is not";
  worker.Stop();
  EXPECT_TRUE(worker.stop());
  EXPECT_EQ(rests, 1);
  EXPECT_FALSE(worker.IsStarted());
  EXPECT_FALSE(worker.RestUntil(std::chrono::steady_clock::now() + std::chrono::hours(1)));
  worker.Stop();
}

TEST(Worker, WhatItThrowsEndsItAlone) {
  Worker worker;
  worker.Start([] { throw std::runtime_error("error reading the file: No such process"); });
  worker.Join();
  EXPECT_EQ(worker.failure(), "error reading the file: No such process");
  Worker second;
  second.Start([] { throw std::bad_alloc(); });
  second.Join();
  EXPECT_NE(second.failure(), "");
  Worker third;
  third.Start([] { throw 7; });
  third.Join();
  EXPECT_EQ(third.failure(), "unknown");
}

TEST(LookPace, PausesLongerAfterALookThatComputes) {
  LookPace pace{std::chrono::milliseconds(1)};
  EXPECT_EQ(pace.Pause(), std::chrono::milliseconds(1));
  pace.Begin();
  const std::clock_t began = std::clock();
  while (std::clock() - began < CLOCKS_PER_SEC / 100) {
  }
  pace.End();
  EXPECT_GE(pace.Pause(), std::chrono::milliseconds(9 * 400));
  pace.Begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  pace.End();
  EXPECT_LT(pace.Pause(), std::chrono::milliseconds(50 * 400)) << "waiting is no cost";
}

}  // namespace
}  // namespace vramscope::cli
