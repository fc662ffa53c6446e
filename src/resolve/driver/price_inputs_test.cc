// SPDX-License-Identifier: Apache-2.0
#include "resolve/driver/price_inputs.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace vramscope::resolve {
namespace {

constexpr trace::DeviceId kGpu{0};

class OneGpu : public trace::Trace {
 public:
  OneGpu() {
    devices_.resize(1);
    processes_.resize(2);
  }
  std::string_view SourceLine(tables::StringId, uint32_t) const override { return ""; }
  util::Status ForEachEvent(const EventSink&) override { return {}; }
};

class PriceInputsTest : public ::testing::Test {
 protected:
  trace::EventContext At(int64_t begin_ns, int64_t end_ns) const {
    return {.time_ns = end_ns, .begin_ns = begin_ns, .end_ns = end_ns, .process = process_};
  }
  template <class Record>
  trace::Event EventAt(int64_t begin_ns, int64_t end_ns) const {
    trace::Event event;
    static_cast<trace::EventContext&>(event) = At(begin_ns, end_ns);
    event.Become<Record>();
    return event;
  }
  // A call of the driver that moves so much, or nothing.
  template <class Record>
  void Call(int64_t begin_ns, int64_t end_ns, int64_t bytes = 0) {
    const auto event = EventAt<Record>(begin_ns, end_ns);
    inputs_.BeginEvent(event);
    inputs_.NoteCall(kGpu);
    inputs_.Move(process_, kGpu, bytes);
    inputs_.EndEvent();
  }
  template <class Record>
  void Block(int64_t time_ns, int64_t bytes) {
    auto event = EventAt<Record>(time_ns, time_ns);
    event.thread = tables::ThreadId{7};
    inputs_.BeginEvent(event);
    inputs_.Move(process_, kGpu, bytes);
    inputs_.EndEvent();
  }
  void Reading(int64_t begin_ns, int64_t end_ns) {
    inputs_.On(At(begin_ns, end_ns), trace::Reading{.device = kGpu, .total = 100 * kMiB});
  }
  const std::vector<price::Move>& moves() {
    inputs_.Finish();
    return inputs_.input(0).moves;
  }

  OneGpu trace_;
  PriceInputs inputs_{trace_};
  trace::ProcessId process_{0};
};

TEST_F(PriceInputsTest, CallsThatMoveNothingAreOneUntilSomethingElseHappens) {
  Call<trace::Alloc>(10, 20);
  Call<trace::Free>(30, 40);
  Reading(41, 45);
  Call<trace::Free>(50, 60);
  ASSERT_EQ(moves().size(), 2u);
  EXPECT_EQ(moves()[0].when.time_ns, 20);
  EXPECT_EQ(moves()[0].when.begin_ns, 10);
  EXPECT_EQ(moves()[0].when.end_ns, 40);
  EXPECT_TRUE(moves()[0].asks);
  EXPECT_EQ(moves()[1].when.begin_ns, 50);
}

TEST_F(PriceInputsTest, WhoAsksAndWhoseItIsIsKept) {
  Call<trace::Free>(10, 20);
  Call<trace::Alloc>(30, 40);
  process_ = trace::ProcessId{1};
  Call<trace::Alloc>(50, 60);
  ASSERT_EQ(moves().size(), 3u);
  EXPECT_FALSE(moves()[0].asks);
  EXPECT_TRUE(moves()[1].asks);
  EXPECT_EQ(moves()[2].process, 1u);
}

TEST_F(PriceInputsTest, ACallThatMovesSomethingStandsForItself) {
  Call<trace::Alloc>(10, 20, 2 * kMiB);
  Call<trace::Alloc>(30, 40, 2 * kMiB);
  ASSERT_EQ(moves().size(), 2u);
  EXPECT_EQ(moves()[1].bytes, 2 * kMiB);
}

// There may be ten million of them, and no figure tells one from the next.
TEST_F(PriceInputsTest, BlocksMoveTogetherUntilSomethingElseHappens) {
  for (int64_t i = 0; i < 1000; ++i)
    Block<trace::BlockAlloc>(10 + i, 512);
  Reading(2000, 2001);
  Block<trace::BlockFree>(3000, -512);
  ASSERT_EQ(moves().size(), 2u);
  EXPECT_EQ(moves()[0].bytes, 512 * 1000);
  EXPECT_EQ(moves()[0].when.time_ns, 1009);
  EXPECT_EQ(moves()[1].bytes, -512);
}

// Their events are gone by then.
TEST_F(PriceInputsTest, BlocksKeepTheirCallerUntilTheyMove) {
  Block<trace::BlockAlloc>(10, 5);
  ASSERT_EQ(moves().size(), 1u);
  EXPECT_EQ(inputs_.move_callers(0)[0].thread, tables::ThreadId{7});
  Block<trace::BlockFree>(20, -5);
  Call<trace::Alloc>(30, 40);
  ASSERT_EQ(moves().size(), 3u);
  EXPECT_EQ(inputs_.move_callers(0)[1].thread, tables::ThreadId{7});
}

TEST_F(PriceInputsTest, FiguresThatNoGpuCanShowAreLeftOut) {
  const trace::EventContext at = At(10, 20);
  inputs_.On(at, trace::Reading{.device = kGpu, .free = 5});  // more free than there is
  inputs_.On(at, trace::Reading{.device = kGpu, .free = 5, .total = UINT64_MAX});
  inputs_.On(at, trace::DeviceSample{.device = kGpu, .used = UINT64_MAX});
  EXPECT_TRUE(inputs_.input(0).readings.empty());
  EXPECT_TRUE(inputs_.input(0).samples.empty());
}

// Whatever a damaged trace says, what is computed with times cannot overflow.
TEST_F(PriceInputsTest, TimesAreBounded) {
  Call<trace::Alloc>(INT64_MIN, 20, kMiB);
  EXPECT_GT(moves()[0].when.begin_ns, INT64_MIN / 2);
}

TEST_F(PriceInputsTest, WhatBelongsToNoDeviceIsACallOnEach) {
  inputs_.On(At(10, 20), trace::Implicit{});
  ASSERT_EQ(inputs_.input(0).calls.size(), 1u);
  EXPECT_FALSE(inputs_.input(0).calls[0].reallocates);
}

// The driver frees local memory before it allocates more: a moment with less in NVML is not
// residual.
TEST_F(PriceInputsTest, CodeThatComesMayTakeLocalMemoryAnew) {
  using format::ImplicitKind;
  const auto reallocates = [&](ImplicitKind kind) {
    inputs_.On(At(10, 20), trace::Implicit{.kind = kind, .device = kGpu});
    return inputs_.input(0).calls.back().reallocates;
  };
  for (const ImplicitKind kind : {ImplicitKind::kModule, ImplicitKind::kFunction,
                                  ImplicitKind::kLaunch, ImplicitKind::kLimit})
    EXPECT_TRUE(reallocates(kind));
  for (const ImplicitKind kind :
       {ImplicitKind::kContext, ImplicitKind::kStream, ImplicitKind::kGraph, ImplicitKind::kOther})
    EXPECT_FALSE(reallocates(kind));
}

}  // namespace
}  // namespace vramscope::resolve
