// SPDX-License-Identifier: Apache-2.0
#include "query/allocator/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "query/allocator/allocator_model.h"

namespace vramscope::query {
namespace {

constexpr uint64_t kTestDeviceBytes = uint64_t{80} << 30;

// Records what the model itself does, as a recorder sees it: no streams, no requested sizes.
class RequestRecorder : public AllocatorListener {
 public:
  explicit RequestRecorder(const char* settings = "")
      : driver_(UINT64_MAX), model_(RulesOf("2.13.0"), kTestDeviceBytes, &driver_, this) {
    EXPECT_TRUE(ApplyAllocatorSettings(settings, RulesOf("2.13.0"), &model_.settings()).ok());
    out_.segments.resize(1);
  }

  size_t Allocate(uint64_t bytes, uint64_t stream) {
    AllocatorBlock* const block = model_.Allocate(bytes, stream);
    auto segment = by_address_.upper_bound(block->address);
    --segment;
    ++now_ns_;
    out_.steps.push_back(
        {now_ns_, RecordedStep::Kind::kAllocate, static_cast<uint32_t>(out_.blocks.size()), 0});
    out_.blocks.push_back({now_ns_, INT64_MAX, block->address, block->bytes, block->bytes,
                           tables::SegmentId{segment->second}, tables::SiteId{}});
    blocks_.push_back(block);
    return blocks_.size() - 1;
  }
  void Free(size_t block) {
    out_.steps.push_back({++now_ns_, RecordedStep::Kind::kFree, static_cast<uint32_t>(block), 0});
    model_.Free(blocks_[block]);
  }
  void Empty() { model_.EmptyCache(); }

  void OnAllocatorEvent(const AllocatorEvent& event) override {
    const bool made = event.action == AllocatorAction::kSegmentAlloc;
    if (!made && event.action != AllocatorAction::kSegmentFree)
      return;
    if (made) {
      by_address_[event.address] = static_cast<uint32_t>(out_.segments.size());
      out_.segments.push_back({event.address, event.bytes, false});
    }
    reserved_bytes_ += made ? event.bytes : -event.bytes;
    out_.steps.push_back({++now_ns_, RecordedStep::Kind::kReserved, 0, reserved_bytes_});
    if (!made)
      out_.steps.push_back({now_ns_, RecordedStep::Kind::kEmpty, 0, reserved_bytes_});
  }

  RecordedRequests& requests() { return out_; }
  uint64_t reserved_bytes() const { return reserved_bytes_; }

 private:
  SimulatedDriver driver_;
  AllocatorModel model_;
  std::vector<AllocatorBlock*> blocks_;
  std::map<uint64_t, uint32_t> by_address_;
  uint64_t reserved_bytes_ = 0;
  int64_t now_ns_ = 0;
  RecordedRequests out_;
};

Reproduction ReproduceWith(const RecordedRequests& requests, const char* text) {
  AllocatorSettings settings;
  EXPECT_TRUE(ApplyAllocatorSettings(text, RulesOf("2.13.0"), &settings).ok());
  return Reproduce(requests, RulesOf("2.13.0"), settings, kTestDeviceBytes);
}

// Random requests of some streams, with an empty_cache() now and then.
void RunRandomly(uint32_t seed, uint64_t streams, RequestRecorder* recorder) {
  std::mt19937 random(seed);
  const auto below = [&](uint64_t limit) { return random() % limit; };
  std::vector<size_t> live;
  for (int i = 0; i < 600; ++i) {
    if (below(100) == 0)
      recorder->Empty();
    if (below(2) == 0 || live.empty()) {
      const uint64_t bytes = below(2) == 0 ? 1 + below(kMebibyte) : 1 + below(40 * kMebibyte);
      live.push_back(recorder->Allocate(bytes, below(streams)));
    } else {
      const size_t at = below(live.size());
      recorder->Free(live[at]);
      live[at] = live.back();
      live.pop_back();
    }
  }
}

TEST(ReplayTest, ReproducesOneStream) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    RequestRecorder recorder;
    RunRandomly(seed, 1, &recorder);
    const Reproduction result = ReproduceWith(recorder.requests(), "");
    EXPECT_GT(result.events, 20u);
    EXPECT_EQ(result.different_events, 0u) << seed;
    EXPECT_EQ(result.moved_blocks, 0u) << seed;
    EXPECT_EQ(result.stream_count, 1u) << seed;
  }
}

TEST(ReplayTest, InfersStreamsFromWhatSharesSegments) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    RequestRecorder recorder;
    RunRandomly(seed, 3, &recorder);
    const Reproduction result = ReproduceWith(recorder.requests(), "");
    EXPECT_EQ(result.different_events, 0u) << seed;
    EXPECT_GE(result.stream_count, 2u) << seed;
  }
}

TEST(ReplayTest, OtherBytesThanRecordedDiffer) {
  RequestRecorder recorder("max_split_size_mb:20");
  RunRandomly(1, 1, &recorder);
  const Reproduction same = ReproduceWith(recorder.requests(), "max_split_size_mb:20");
  EXPECT_EQ(same.different_events, 0u);
  // Wrong settings look like more streams. The right ones may, too: a block taken whole hides that
  // its request was below max_split_size.
  EXPECT_GT(ReproduceWith(recorder.requests(), "").stream_count, same.stream_count);
  // As if it had a segment that the model does not make.
  RecordedRequests requests = recorder.requests();
  for (RecordedStep& step : requests.steps) {
    if (step.kind == RecordedStep::Kind::kReserved)
      step.reserved_bytes += 2 * kMebibyte;
  }
  const Reproduction result = ReproduceWith(requests, "max_split_size_mb:20");
  EXPECT_EQ(result.different_events, result.events);
  EXPECT_EQ(result.largest_difference_bytes, 2 * kMebibyte);
}

TEST(ReplayTest, FailsWhereTheCardIsFull) {
  RequestRecorder recorder;
  const size_t first = recorder.Allocate(30 * kMebibyte, 0);
  recorder.Allocate(40 * kMebibyte, 0);
  recorder.Free(first);
  recorder.Allocate(50 * kMebibyte, 0);
  const auto replay = [&](uint64_t capacity) {
    return ReplayWith(recorder.requests(), {0, 0, 0, 0}, RulesOf("2.13.0"), AllocatorSettings(),
                      kTestDeviceBytes, capacity);
  };
  const AllocatorReplay whole = replay(UINT64_MAX);
  EXPECT_EQ(whole.peak_bytes, 120 * kMebibyte);
  EXPECT_EQ(whole.allocated_bytes, 90 * kMebibyte);
  EXPECT_EQ(whole.driver_calls, 3u);
  EXPECT_FALSE(whole.failed_block);
  // The free segment goes back first.
  EXPECT_EQ(replay(90 * kMebibyte).driver_calls, 4u);
  EXPECT_FALSE(replay(90 * kMebibyte).failed_block);
  EXPECT_EQ(replay(88 * kMebibyte).failed_block, 2u);
}

AllocatorReplay ReplayOfOneStream(const RecordedRequests& requests,
                                  const AllocatorSettings& settings,
                                  uint64_t capacity) {
  return ReplayWith(requests, std::vector<uint64_t>(requests.segments.size()), RulesOf("2.13.0"),
                    settings, kTestDeviceBytes, capacity);
}

bool AreEqual(const AllocatorReplay& a, const AllocatorReplay& b) {
  return a.peak_bytes == b.peak_bytes && a.peak_ns == b.peak_ns &&
         a.allocated_bytes == b.allocated_bytes && a.driver_calls == b.driver_calls &&
         a.failed_block == b.failed_block;
}

// On a card that is large enough, and on one that is not.
TEST(ReplayTest, WhatHasNoEffectChangesNoReplay) {
  const char* const texts[] = {"max_split_size_mb:41",
                               "max_split_size_mb:30",
                               "garbage_collection_threshold:0.5",
                               "max_split_size_mb:41,roundup_power2_divisions:1",
                               "max_split_size_mb:41,roundup_power2_divisions:2",
                               "max_split_size_mb:80,large_segment_size_mb:80"};
  size_t without_split_limit = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    RequestRecorder recorder;
    RunRandomly(seed, 1, &recorder);
    const RecordedRequests& requests = recorder.requests();
    const Reproduction recorded = ReproduceWith(requests, "");
    EXPECT_TRUE(AreEqual(recorded.replay, ReplayOfOneStream(requests, {}, UINT64_MAX))) << seed;
    for (const char* const text : texts) {
      AllocatorSettings settings;
      ASSERT_EQ(ApplyAllocatorSettings(text, RulesOf("2.13.0"), &settings).message(), "");
      const AllocatorSettings effect = EffectOf(settings, {}, requests);
      without_split_limit += effect == AllocatorSettings() ? 1u : 0u;
      for (const uint64_t capacity : {UINT64_MAX, recorded.replay.peak_bytes * 3 / 4}) {
        EXPECT_TRUE(AreEqual(ReplayOfOneStream(requests, settings, capacity),
                             ReplayOfOneStream(requests, effect, capacity)))
            << seed << " " << text;
      }
    }
  }
  // The first and the third; the fourth rounds as the first does.
  EXPECT_GE(without_split_limit, 40u);
  EXPECT_LE(without_split_limit, 60u);
}

}  // namespace
}  // namespace vramscope::query
