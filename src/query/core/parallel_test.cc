// SPDX-License-Identifier: Apache-2.0
#include "query/core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <numeric>
#include <vector>

namespace vramscope::query {
namespace {

// Frames of one row; reading one of them throws.
class ThrowingRecording : public tables::Recording {
 public:
  explicit ThrowingRecording(size_t throws) : throws_(throws) {}
  size_t frame_count() const override { return 1000; }
  const tables::FrameZone& zone(size_t) const override { return zone_; }
  util::Status Read(size_t frame, uint32_t, tables::AllocationFrame* out) const override {
    if (frame == throws_)
      throw std::bad_alloc();
    out->rows = 1;
    return {};
  }

 private:
  size_t throws_;
  tables::FrameZone zone_;
};

std::vector<size_t> AllFrames() {
  std::vector<size_t> frames(1000);
  std::iota(frames.begin(), frames.end(), 0U);
  return frames;
}

TEST(ParallelTest, WhatAThreadThrowsComesToWhoAsked) {
  std::atomic<size_t> visited{0};
  const auto visit = [&](size_t, const tables::AllocationFrame& frame) { visited += frame.rows; };
  EXPECT_TRUE(ForEachFrame(ThrowingRecording(5000), AllFrames(), 0, 4, visit).ok());
  EXPECT_EQ(visited, 1000U);
  EXPECT_THROW((void)ForEachFrame(ThrowingRecording(300), AllFrames(), 0, 4, visit),
               std::bad_alloc);
  const auto refuse = [](size_t, const tables::AllocationFrame&) { throw 1; };
  EXPECT_THROW((void)ForEachFrame(ThrowingRecording(5000), AllFrames(), 0, 4, refuse), int);
}

}  // namespace
}  // namespace vramscope::query
