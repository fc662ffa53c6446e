// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/report_text.h"

namespace vramscope::query {
namespace {

using trace::EventKind;

constexpr uint64_t kMiB = TraceBuilder::kMiB;
constexpr uint64_t kBase = uint64_t{0x7f} << 40;

// Found by tests/differential: the range kept the device of what was mapped into it first.
TEST(Reservations, OneRangeOfAddressesHasMemoryOfTwoDevicesInTurn) {
  TraceBuilder trace;
  const trace::DeviceId first = trace.AddGpu(0), second = trace.AddGpu(1);
  trace.AddProcess(100);
  trace.On(first);
  trace.Fill(EventKind::kReserve, kBase, 64 * kMiB);
  trace.Fill(EventKind::kHandleCreate, 1, 4 * kMiB);
  trace.Fill(EventKind::kMap, kBase, 4 * kMiB, 1);
  trace.Fill(EventKind::kUnmap, kBase, 4 * kMiB);
  trace.Fill(EventKind::kHandleRelease, 1, 0);
  trace.On(second);
  trace.Fill(EventKind::kHandleCreate, 2, 8 * kMiB);
  trace.Fill(EventKind::kMap, kBase, 8 * kMiB, 2);
  trace.Alloc(kBase, 6 * kMiB);
  trace.Fill(EventKind::kProcessEnd, 0, 0);

  const Report report = ReportOf(trace);
  EXPECT_EQ(BrokenInvariants(report), "");
  ASSERT_EQ(report.devices.size(), 2u);
  EXPECT_EQ(report.devices[0].ledger_bytes, 4 * kMiB);
  EXPECT_EQ(report.devices[1].ledger_bytes, 8 * kMiB);
}

}  // namespace
}  // namespace vramscope::query
