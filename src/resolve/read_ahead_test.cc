// SPDX-License-Identifier: Apache-2.0
#include "resolve/read_ahead.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <new>
#include <vector>

namespace vramscope::resolve {
namespace {

// Events whose sizes are 0, 1, 2, ..., in batches of all sizes.
class CountingTrace : public trace::Trace {
 public:
  explicit CountingTrace(uint64_t count, uint64_t throws_at = UINT64_MAX)
      : count_(count), throws_at_(throws_at) {}
  std::string_view SourceLine(tables::StringId, uint32_t) const override { return {}; }
  util::Status ForEachEvent(const EventSink& sink) override {
    std::vector<trace::Event> batch;
    for (uint64_t i = 0; i < count_; ++i) {
      if (i == throws_at_)
        throw std::bad_alloc();
      batch.emplace_back().Become(trace::BlockFree{.size = i});
      if (i % 7 == 0 || i % 5000 == 4999) {
        sink(batch);
        batch.clear();
      }
    }
    sink(batch);
    return fails ? util::Status::Error("it fails") : util::Status();
  }
  bool fails = false;

 private:
  uint64_t count_;
  uint64_t throws_at_;
};

TEST(ReadAheadTest, AllEventsComeInTheirOrder) {
  for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{100'000}}) {
    CountingTrace trace(count);
    uint64_t next = 0;
    const auto status = ForEachEventReadAhead(trace, [&](std::span<const trace::Event> events) {
      for (const trace::Event& event : events)
        ASSERT_EQ(event.As<trace::BlockFree>().size, next++);
    });
    EXPECT_TRUE(status.ok());
    EXPECT_EQ(next, count);
  }
}

TEST(ReadAheadTest, ErrorsAndWhatIsThrownComeToWhoAsked) {
  CountingTrace failing(10'000);
  failing.fails = true;
  EXPECT_EQ(ForEachEventReadAhead(failing, [](auto) {}).message(), "it fails");
  CountingTrace throwing(100'000, 50'000);
  EXPECT_THROW((void)ForEachEventReadAhead(throwing, [](auto) {}), std::bad_alloc);
  // The reading thread ends although its batches are not consumed.
  CountingTrace trace(1'000'000);
  EXPECT_THROW((void)ForEachEventReadAhead(trace, [](auto) { throw 1; }), int);
}

}  // namespace
}  // namespace vramscope::resolve
