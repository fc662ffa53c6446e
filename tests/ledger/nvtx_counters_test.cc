// SPDX-License-Identifier: Apache-2.0
// Counters that processes publish, from events to a report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/report_text.h"

namespace vramscope::query {
namespace {

TEST(NvtxCounters, AreSeriesOfTheirProcess) {
  TraceBuilder trace;
  const trace::DeviceId gpu = trace.AddGpu();
  trace.AddProcess(4711);
  trace.AddProcess(4712);
  const tables::ThreadId threads[] = {trace.AddThread(1, "first"), trace.AddThread(2, "second")};
  const auto sample = [&](size_t thread, uint64_t counter, int64_t bytes, trace::DeviceId device) {
    trace.OnThread(threads[thread]);
    auto& event = trace.Add(trace::NvtxCounter{
        .counter = counter, .name = trace.Text("op " + std::to_string(counter)), .bytes = bytes});
    event.As<trace::NvtxCounter>().device = device;
    event.process = trace::ProcessId{static_cast<uint16_t>(thread)};
  };
  sample(0, 7, 100, trace::kNoDevice);
  sample(1, 7, 40, trace::kNoDevice);  // another process's number 7
  sample(0, 9, -5, gpu);
  sample(0, 7, 300, trace::kNoDevice);
  sample(0, 7, 20, trace::kNoDevice);

  const Report report = ReportOf(trace);
  ASSERT_EQ(report.nvtx_counters.size(), 3u);
  const NvtxCounter& highest = report.nvtx_counters[0];
  EXPECT_EQ(highest.name, "op 7");
  EXPECT_EQ(highest.pid, 4711u);
  EXPECT_EQ(highest.device, std::nullopt);
  EXPECT_EQ(highest.samples, 3u);
  EXPECT_EQ(highest.peak_bytes, 300);
  EXPECT_EQ(highest.last_bytes, 20);
  EXPECT_EQ(report.nvtx_counters[1].pid, 4712u);
  EXPECT_EQ(report.nvtx_counters[1].peak_bytes, 40);
  EXPECT_EQ(report.nvtx_counters[2].device, 0);
  EXPECT_EQ(report.nvtx_counters[2].peak_bytes, -5);

  const auto recording = Analyse(trace);
  const std::vector<tables::NvtxSampleRow>& samples = recording->tables().nvtx_samples;
  ASSERT_EQ(samples.size(), 5u);
  EXPECT_LT(samples[0].time_ns, samples[3].time_ns);
  EXPECT_EQ(samples[3].counter, samples[0].counter);
  EXPECT_NE(samples[1].counter, samples[0].counter);
}

}  // namespace
}  // namespace vramscope::query
