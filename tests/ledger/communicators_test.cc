// SPDX-License-Identifier: Apache-2.0
// Which communicator NCCL's memory is of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/report_text.h"

namespace vramscope::query {
namespace {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class CommunicatorsTest : public ::testing::Test {
 protected:
  CommunicatorsTest() {
    gpus_[0] = trace_.AddGpu(0);
    gpus_[1] = trace_.AddGpu(1);
    trace_.AddProcess(100);
    for (size_t i = 0; i < threads_.size(); ++i)
      threads_[i] = trace_.AddThread(static_cast<uint32_t>(101 + i), "");
    nccl_ = trace_.Native({"/usr/bin/solver", "/x/libnccl.so.2", "/x/libcuda.so.1"});
    other_ = trace_.Native({"/usr/bin/solver", "/x/libcuda.so.1"});
  }

  // At a time in us, in MiB.
  void Take(int64_t at, size_t thread, uint64_t mib, tables::StackId native, size_t gpu = 0) {
    trace_.At(at * 1000);
    trace_.On(gpus_[gpu]);
    trace_.OnThread(threads_[thread]);
    trace_.StackIs({}, native);
    trace_.DriverAlloc(next_ += 64 * kMiB, mib * kMiB);
  }
  void Range(int64_t begin,
             int64_t end,
             size_t thread,
             uint64_t communicator,
             uint64_t ranks = 8,
             trace::DeviceId device = trace::kNoDevice) {
    trace_.At(end * 1000);
    trace_.OnThread(threads_[thread]);
    trace::Event& event =
        trace_.Add(trace::Communicator{.communicator = communicator, .ranks = ranks});
    event.begin_ns = TraceBuilder::kStartNs + begin * 1000;
    event.As<trace::Communicator>().device = device;
  }
  std::map<std::string, uint64_t> Told() {
    ReportQuery query = At("end");
    query.by = {Dimension::kCommunicator};
    std::map<std::string, uint64_t> told;
    for (const auto& [name, bytes] : RowBytes(ReportOf(trace_, query)))
      told[name] = bytes / kMiB;
    return told;
  }

  TraceBuilder trace_;
  std::array<trace::DeviceId, 2> gpus_;
  std::array<tables::ThreadId, 4> threads_;
  tables::StackId nccl_, other_;
  uint64_t next_ = kBase;
};

TEST_F(CommunicatorsTest, WhatWasTakenInItsRangeByItsThreadAndByNcclsOwn) {
  Take(1, 0, 2, nccl_);  // before
  Take(11, 0, 4, nccl_);
  Take(12, 0, 8, other_);   // called by NCCL, if from within
  Take(13, 1, 16, nccl_);   // a proxy
  Take(14, 2, 32, other_);  // the program, meanwhile
  Range(10, 20, 0, 0xab);
  Take(21, 1, 64 - 2, nccl_);
  EXPECT_THAT(Told(), UnorderedElementsAre(Pair("0xab of 8 ranks", 4 + 8 + 16),
                                           Pair("(none)", 2 + 32 + 62)));
}

TEST_F(CommunicatorsTest, ThoseThatAreMadeAtOnceOnDevicesOfTheirOwn) {
  Take(11, 0, 2, nccl_, 0);
  Take(12, 1, 4, nccl_, 1);
  Take(13, 2, 8, nccl_, 0);
  Take(14, 3, 16, nccl_, 1);
  Range(10, 20, 0, 0xa, 2, gpus_[0]);
  Range(10, 21, 1, 0xb, 2, gpus_[1]);
  EXPECT_THAT(Told(),
              UnorderedElementsAre(Pair("0xa of 2 ranks", 2 + 8), Pair("0xb of 2 ranks", 4 + 16)));
}

TEST_F(CommunicatorsTest, OfTwoAtOnceAThreadOfNcclsOwnMayServeEither) {
  Take(11, 0, 2, nccl_);
  Take(12, 1, 4, nccl_);
  Take(13, 2, 8, nccl_);
  Range(10, 20, 0, 0xa);
  Range(10, 21, 1, 0xb, 0);  // that range does not say how many ranks there are
  EXPECT_THAT(Told(), UnorderedElementsAre(Pair("0xa of 8 ranks", 2), Pair("0xb", 4),
                                           Pair("one of several", 8)));
}

TEST_F(CommunicatorsTest, TheInnermostRangeKnowsBest) {
  Take(11, 0, 2, nccl_);
  Take(13, 0, 4, nccl_);
  Range(12, 14, 0, 0xb, 4);
  Range(10, 20, 0, 0xa);
  Range(0, 30, 0, 0);
  EXPECT_THAT(Told(), UnorderedElementsAre(Pair("0xa of 8 ranks", 2), Pair("0xb of 4 ranks", 4)));
}

}  // namespace
}  // namespace vramscope::query
