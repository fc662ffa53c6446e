// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "import/testing/imported.h"

namespace vramscope::imports {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Imported;
using testing::ImportText;
using ::testing::IsEmpty;
using ::testing::Pair;

std::string Memory(double ts,
                   int64_t bytes,
                   uint64_t address,
                   int64_t allocated,
                   int64_t reserved) {
  return R"({"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":7,"tid":7,"ts":)" +
         std::to_string(ts) + R"(,"args":{"Device Type":1,"Device Id":0,"Addr":)" +
         std::to_string(address) + R"(,"Bytes":)" + std::to_string(bytes) +
         R"(,"Total Allocated":)" + std::to_string(allocated) + R"(,"Total Reserved":)" +
         std::to_string(reserved) + "}}";
}

std::string Trace(const std::string& events) {
  return R"({"schemaVersion":1,"deviceProperties":[{"id":0,"name":"NVIDIA H200","totalGlobalMem":4096}],
    "distributedInfo":{"backend":"nccl","rank":3},"traceEvents":[)" +
         events + "]}";
}

std::vector<std::string> FramesOf(const Imported& trace, tables::StackId stack) {
  std::vector<std::string> frames;
  for (; stack.value != 0; stack = trace.tables.stacks[stack.value].parent)
    frames.push_back(
        trace.Text(trace.tables.frames[trace.tables.stacks[stack.value].frame.value].function));
  return frames;
}

TEST(ChromeTrace, MemoryEventsBecomeBlocksOfASegment) {
  const Imported trace = ImportText(Trace(
      Memory(30.5, -1024, 4096, 500, 2048) + "," +
      R"({"ph":"X","cat":"cpu_op","name":"aten::empty","pid":7,"tid":7,"ts":10.0,"dur":5.5,"args":{"x":[[1],{}]}},)" +
      R"({"ph":"X","cat":"python_function","name":"train.py(12): step","pid":7,"tid":7,"ts":5,"dur":50},)" +
      Memory(12, 1024, 4096, 1524, 2048)));
  ASSERT_EQ(trace.error, "");
  EXPECT_EQ(trace.format, "chrome-trace");
  ASSERT_EQ(trace.rows.size(), 1u);
  const tables::AllocationRow& row = trace.rows[0];
  EXPECT_EQ(row.bytes, 1024u);
  EXPECT_EQ(row.begin_ns, 0);
  EXPECT_EQ(row.end_ns, 18'500);
  EXPECT_NE(row.segment.value, 0u);
  const tables::SiteRow& site = trace.tables.sites[row.site.value];
  EXPECT_THAT(FramesOf(trace, site.stack), ElementsAre("aten::empty", "step"));
  EXPECT_EQ(trace.tables.processes[1].rank, 3);
  EXPECT_EQ(trace.tables.processes[1].pid, 7u);
  EXPECT_EQ(trace.Text(trace.tables.devices[1].name), "NVIDIA H200");
  // 500 bytes were there before; 2048 are reserved all the time.
  std::map<format::Part, int64_t> parts;
  for (const tables::StepRow& step : trace.tables.steps)
    parts[trace.tables.sites[trace.tables.counters[step.counter.value].site.value].part] +=
        step.bytes;
  EXPECT_EQ(parts[format::Part::kBeforeRecording], 500);
  EXPECT_EQ(parts[format::Part::kCached], 2048 - 500);
  EXPECT_THAT(trace.Losses(), IsEmpty());
}

std::string Annotation(const std::string& name, int begin_us, int end_us) {
  return R"(,{"ph":"X","cat":"user_annotation","name":")" + name + R"(","pid":7,"tid":7,"ts":)" +
         std::to_string(begin_us) + R"(,"dur":)" + std::to_string(end_us - begin_us) + "}";
}

TEST(ChromeTrace, StepsOfTheProfilerElseOfOptimizersAreIterations) {
  const std::string memory = Memory(100, 1024, 4096, 1024, 2048);
  const std::string optimizer = Annotation("Optimizer.step#SGD.step", 150, 160) +
                                Annotation("Optimizer.step#SGD.step", 250, 260);
  const Imported by_optimizer = ImportText(Trace(memory + optimizer));
  ASSERT_EQ(by_optimizer.tables.iterations.size(), 2u);
  EXPECT_EQ(by_optimizer.tables.iterations[1].begin_ns, 60'000);
  EXPECT_EQ(by_optimizer.tables.iterations[1].end_ns, 160'000);
  const Imported by_profiler =
      ImportText(Trace(memory + optimizer + Annotation("ProfilerStep#7", 90, 190) +
                       Annotation("ProfilerStep#8", 190, 300)));
  ASSERT_EQ(by_profiler.tables.iterations.size(), 2u);
  EXPECT_EQ(by_profiler.tables.iterations[0].number, 7);
  EXPECT_EQ(by_profiler.tables.processes[1].iterations_by, tables::IterationsBy::kProfiler);
  EXPECT_EQ(by_profiler.tables.iterations[0].begin_ns, -10'000);
  EXPECT_EQ(by_profiler.tables.iterations[1].end_ns, 200'000);
}

TEST(ChromeTrace, ATraceWithoutMemoryEventsNamesTheOptionThatMakesThem) {
  EXPECT_THAT(ImportText(Trace(Annotation("f", 1, 2).substr(1))).error,
              HasSubstr("record it with profile_memory=True"));
  EXPECT_THAT(ImportText(Trace(R"({"ph":"X","name":"f","pid":1,"tid":1,"ts":1,"dur":2})")).error,
              HasSubstr("record it with profile_memory=True"));
}

TEST(ChromeTrace, WhatContradictsIsCounted) {
  const Imported trace = ImportText(
      R"([{"ph":"i","name":"[memory]","ts":1,"args":{"Device Type":0,"Device Id":-1,"Addr":1,"Bytes":8}},
          {"ph":"i","name":"[memory]","ts":2,"args":{"Device Type":0,"Device Id":-1,"Addr":2,"Bytes":-8}},
          {"ph":"i","name":"[memory]","ts":3,"args":{"Device Type":0,"Bytes":8}},
          {"ph":"i","name":"[memory]","ts":1e300,"args":{"Addr":3,"Bytes":8}},
          {"ph":"i","name":"[memory]","ts":4,"args":{"Addr":4,"Bytes":9223372036854775807}},
          {"ph":"i","name":"[memory]","ts":5,"args":{"Device Type":1,"Device Id":-5,"Addr":5,"Bytes":8}})");
  ASSERT_EQ(trace.error, "");
  EXPECT_EQ(trace.rows.size(), 1u);
  EXPECT_EQ(trace.DeviceOf(trace.tables.sites[trace.rows[0].site.value].account), -1);
  EXPECT_THAT(trace.Losses(), ElementsAre(Pair("frees of unknown allocations", 1u),
                                          Pair("memory events that are not whole", 4u),
                                          Pair("traces that are cut off at the end", 1u)));
}

TEST(ChromeTrace, StampsMayCountFromTheStartOfTheMachineOrFrom1970) {
  for (const double begin_us : {4'554'424'461'075.0, 1'790'857'026'000'000.0}) {
    const Imported trace = ImportText(
        Trace(Memory(begin_us, 8, 1, 8, 8) + "," + Memory(begin_us + 1000, -8, 1, 0, 8)));
    ASSERT_EQ(trace.rows.size(), 1u) << trace.error;
    EXPECT_EQ(trace.rows[0].end_ns, 1'000'000);
  }
}

TEST(ChromeTrace, ATraceWithoutMemoryIsAnError) {
  EXPECT_THAT(ImportText(Trace(R"({"ph":"X","name":"a"})")).error,
              HasSubstr("nothing was imported"));
  EXPECT_THAT(ImportText("{\"traceEvents\": [}").error, HasSubstr("is not JSON"));
}

TEST(ChromeTrace, NamesMayHaveLoneBackslashes) {
  const Imported trace = ImportText(Trace(
      R"({"ph":"X","cat":"python_function","name":"C:\Users\me\train.py(3): \u00fcben","pid":7,"tid":7,"ts":1,"dur":9},)" +
      Memory(2, 1, 1, 1, 1)));
  ASSERT_EQ(trace.error, "");
  const auto stack = trace.tables.sites[trace.rows[0].site.value].stack;
  EXPECT_THAT(FramesOf(trace, stack), ElementsAre("\xc3\xbc"
                                                  "ben"));
}

TEST(ChromeTrace, NamesMayHaveCharactersBeyond16Bits) {
  const auto frame_of = [](const std::string& name) {
    const Imported trace =
        ImportText(Trace(R"({"ph":"X","cat":"python_function","name":"a.py(3): )" + name +
                         R"(","pid":7,"tid":7,"ts":1,"dur":9},)" + Memory(2, 1, 1, 1, 1)));
    EXPECT_EQ(trace.error, "");
    const auto frames = FramesOf(trace, trace.tables.sites[trace.rows[0].site.value].stack);
    return frames.empty() ? std::string() : frames[0];
  };
  EXPECT_EQ(frame_of(R"(\ud83d\ude00x)"), "\xf0\x9f\x98\x80x");
  // Halves without the other one.
  EXPECT_EQ(frame_of(R"(\ud83dx)"), "\xef\xbf\xbdx");
  EXPECT_EQ(frame_of(R"(\ude00x)"), "\xef\xbf\xbdx");
  EXPECT_EQ(frame_of(R"(\ud83d\ud83d\ude00)"), "\xef\xbf\xbd\xf0\x9f\x98\x80");
  EXPECT_EQ(frame_of(R"(\ud83d\n\u20ac)"), "\xef\xbf\xbd\n\xe2\x82\xac");
  EXPECT_EQ(frame_of(R"(x\ud83d)"), "x\xef\xbf\xbd");
}

}  // namespace
}  // namespace vramscope::imports
