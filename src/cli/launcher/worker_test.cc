// SPDX-License-Identifier: Apache-2.0
#include "cli/launcher/worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <stdexcept>

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

}  // namespace
}  // namespace vramscope::cli
