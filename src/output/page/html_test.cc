// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "format/memory_words.h"
#include "output/answers.h"
#include "output/page/page_data.h"
#include "output/report_fixture.h"

namespace vramscope::output {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A process on GPU 3 with a segment of 2 MiB from kStart + 10 on.
class PageTest : public ::testing::Test {
 protected:
  PageTest() {
    tables::Tables& tables = recording_.edit();
    const auto gpu = recording_.AddDevice(tables::DeviceKind::kGpu, 3, "", "NVIDIA H200");
    const auto process = recording_.AddProcess(4711, "python train.py");
    tables.processes[1].begin_ns = kStart;
    tables.processes[1].end_ns = tables.processes[1].exit_ns = kStart + 1000;
    tables.accounts.push_back({process, gpu, kStart, kStart + 1000});
    tables::SiteRow backing = Site(format::Part::kCached, format::Category::kCached);
    backing.backing = 1;
    tables.sites.push_back(backing);
    tables.sites.push_back(Site(format::Part::kAllocated, format::Category::kActivation));
    tables::SegmentRow segment;
    segment.site = tables::SiteId{1};
    segment.part_in_use = format::Part::kFragmentation;
    tables.segments.push_back(segment);
    Add(1, 10, -1, 2 << 20);
  }

  tables::SiteRow Site(format::Part part, format::Category category) {
    tables::SiteRow site;
    site.account = tables::AccountId{1};
    site.part = part;
    site.category = category;
    site.owner = site.allocator = recording_.Intern("PyTorch");
    return site;
  }

  void Add(uint32_t site, int64_t begin, int64_t end, uint64_t bytes, uint64_t rounding = 0) {
    tables::AllocationRow row;
    row.begin_ns = row.alloc_ns = kStart + begin;
    row.end_ns = end < 0 ? tables::kNever : kStart + end;
    row.address = 0x7f00;
    row.bytes = bytes;
    row.rounding_bytes = rounding;
    row.site = tables::SiteId{site};
    row.segment = tables::SegmentId{1};
    ASSERT_TRUE(recording_.Add(row).ok());
    ++recording_.edit().session.allocation_count;
  }

  std::string Data(const PageLimits& limits = {}) {
    std::string text;
    util::JsonWriter json(&text);
    const util::Status status = WritePageData(recording_, limits, json);
    EXPECT_TRUE(status.ok()) << status.message();
    return text;
  }
  std::string Path() const { return testing::TempDir() + "vramscope_html_test.html"; }

  FakeRecording recording_;
};

TEST_F(PageTest, HeadSaysWhatWasRecorded) {
  EXPECT_THAT(Data(),
              AllOf(HasSubstr(R"("schema":"vramscope.page/2")"),
                    HasSubstr(R"("command":"python train.py")"),
                    HasSubstr(R"("recorded_at":"2026-09-21T14:13:20Z")"),
                    HasSubstr(R"("duration_ns":21400000000)"), HasSubstr(R"("finished":true)"),
                    HasSubstr(R"("schema":"vramscope.report/1")")));
}

TEST_F(PageTest, RecordingThatWasCutOffLastsUntilTheLastThingKnown) {
  recording_.edit().session.end_ns = 0;
  EXPECT_THAT(Data(), HasSubstr(R"("duration_ns":1000)"));
}

TEST_F(PageTest, AllocationsAreColumnsInOrderOfTheirBegin) {
  Add(2, 70, -1, 1024, 24);
  Add(2, 20, 90, 512);
  EXPECT_THAT(Data(), HasSubstr(R"("rounding_site":[0,0,3],"segment":[1,1,1],"begin":[10,10,50],)"
                                R"("duration":[-1,70,-1],"bytes":[2097152,512,1024],)"
                                R"("rounding":[0,0,24],"address":["7f00","7f00","7f00"]})"));
}

TEST_F(PageTest, FreeBytesOfASegmentHaveTwoSites) {
  const std::string data = Data();
  EXPECT_THAT(data, HasSubstr(R"(["PyTorch","cached"])"));
  EXPECT_THAT(data, HasSubstr(R"(["PyTorch","fragmentation"])"));
}

TEST_F(PageTest, DictionariesHoldOnlyWhatIsUsedAndStacksOnce) {
  recording_.PythonStack({}, "spare", "/home/u/spare.py", 1);
  const tables::StackId outer = recording_.PythonStack({}, "outer", "/home/u/a.py", 3);
  const tables::StackId inner =
      recording_.PythonStack(outer, "inner", "/usr/lib/python3/dist-packages/torch/x.py", 4);
  tables::SiteRow site = Site(format::Part::kAllocated, format::Category::kActivation);
  site.stack = inner;
  site.place = outer;
  site.module = recording_.Intern("h.0");
  site.module_class = recording_.Intern("Linear");
  recording_.edit().sites.push_back(site);
  Add(3, 20, 30, 1);
  const std::string data = Data();
  EXPECT_THAT(data, HasSubstr(R"("stacks":[[0,0],[0,1],[1,2]])"));
  EXPECT_THAT(data, HasSubstr(R"("frames":[[0,0,0,0],[1,2,3,0],[3,4,4,2]])"));
  EXPECT_THAT(data, HasSubstr(R"("a.py:3 in outer","h.0")"));
  EXPECT_THAT(data, HasSubstr(R"("module_types":{"h.0":"Linear"})"));
  EXPECT_THAT(data, Not(HasSubstr("spare")));
}

// The lightest are left out. The page has their sums at the instants that people can choose.
TEST_F(PageTest, WhatIsLeftOutStandsInSums) {
  Add(2, 20, 900, 512);
  Add(2, 20, 800, 5, 1);
  Add(2, 21, 22, 5);
  PageLimits limits;
  limits.whole = 0;
  limits.allocations = 1;
  const std::string data = Data(limits);
  EXPECT_THAT(data, HasSubstr(R"("bytes":[2097152,512],"rounding":[0,0])"));
  EXPECT_THAT(data, HasSubstr(R"("left_out":{"count":2,"instants":[)"));
  EXPECT_THAT(data, Not(HasSubstr(R"("left_out":{"count":2,"instants":[])")));
  EXPECT_THAT(Data(), HasSubstr(R"("left_out":{"count":0,"instants":[],"site":[])"));
}

// With many equal weights and many layers, an allocation that is not listed keeps its own layer in
// the sums.
TEST_F(PageTest, OfEqualsTheFirstAreListedAndEveryLayerHasItsSum) {
  recording_.edit().sites[2].module = recording_.Intern("a.very.rare.layer");
  Add(2, 20, 30, 7);
  Add(2, 20, 30, 7);
  Add(2, 20, 30, 7);
  PageLimits limits;
  limits.whole = 0;
  limits.allocations = 1;
  EXPECT_THAT(Data(limits), HasSubstr(R"("left_out":{"count":2,)"));
  limits.allocations = 0;  // of those at least one is listed
  limits.sites = 0;
  EXPECT_THAT(Data(limits), HasSubstr(R"("left_out":{"count":2,)"));
  tables::SiteRow other = recording_.edit().sites[2];
  other.module = recording_.Intern("one that nothing lists");
  recording_.edit().sites.push_back(other);
  Add(3, 21, 22, 1);
  const std::string data = Data(limits);
  EXPECT_THAT(data, HasSubstr(R"("left_out":{"count":3,)"));
  EXPECT_THAT(data, HasSubstr(R"("a.very.rare.layer","one that nothing lists"])"));
}

TEST_F(PageTest, OfLayersWithoutEndThoseThatDifferInNumbersAreOne) {
  for (const char* layer : {"h.1.attn", "h.2.attn", "head"}) {
    tables::SiteRow site = Site(format::Part::kAllocated, format::Category::kParameter);
    site.module = recording_.Intern(layer);
    site.module_class = recording_.Intern("Linear");
    site.parameter = recording_.Intern(std::string(layer) + ".weight");
    recording_.edit().sites.push_back(site);
  }
  for (const uint32_t site : {3u, 4u, 5u})
    Add(site, 20, -1, 512);
  EXPECT_THAT(Data(), AllOf(HasSubstr(R"("folded_layers":0)"), HasSubstr("h.2.attn.weight")));
  PageLimits limits;
  limits.layers = 3;  // and bytes without a layer
  const std::string data = Data(limits);
  EXPECT_THAT(data, AllOf(HasSubstr(R"("folded_layers":4)"), Not(HasSubstr("h.2.attn.weight")),
                          HasSubstr(R"("h.*.attn","h.*.attn.weight","head")"),
                          HasSubstr(R"("module_types":{"h.*.attn":"Linear","head":"Linear"})")));
  limits.layers = 1;
  EXPECT_THAT(Data(limits), HasSubstr("(other layers)"));
}

TEST_F(PageTest, MarksAndCheckpoints) {
  tables::Tables& tables = recording_.edit();
  tables.marks.push_back({kStart + 5, recording_.Intern("epoch 1"), tables::ProcessId{1}});
  tables.checkpointed.push_back({tables::AccountId{1}, kStart + 30, kStart + 40});
  tables.iterations.push_back({tables::ProcessId{1}, 0, kStart + 10, kStart + 30});
  const std::string data = Data();
  EXPECT_THAT(data, HasSubstr(R"("marks":[[5,"epoch 1"],[30,"pid 4711 was checkpointed"],)"
                              R"([40,"pid 4711 was restored"]])"));
  EXPECT_THAT(data, HasSubstr(R"("checkpointed":{"account":[1],"begin":[30],"end":[40]})"));
  EXPECT_THAT(data, HasSubstr(R"("iterations":[[1,0,10,30]])"));
}

// A click on a phase leads to the occurrence that has its peak.
TEST_F(PageTest, PhasesAndAdviceStandOnlyWhereThereAreAny) {
  EXPECT_THAT(Data(), AllOf(HasSubstr(R"("phases":null)"),
                            HasSubstr(R"("savings_left_out":false,"savings":null)")));
  PageLimits limits;
  limits.advised = 0;
  EXPECT_THAT(Data(limits), HasSubstr(R"("savings_left_out":true,"savings":null)"));
  tables::Tables& tables = recording_.edit();
  const tables::StringId load = recording_.Intern("load");
  const tables::ProcessId process{1};
  tables.phases.push_back({process, load, kStart + 5, kStart + 50});
  tables.phases.push_back({process, recording_.Intern("serve"), kStart + 50, kStart + 200});
  tables.phases.push_back({process, load, kStart + 200, kStart + 300});
  tables.sites.push_back(Site(format::Part::kAllocated, format::Category::kParameter));
  tables::AllocationRow row;
  row.begin_ns = row.alloc_ns = kStart + 210;
  row.end_ns = kStart + 400;
  row.bytes = 1 << 20;
  row.site = tables::SiteId{3};
  ASSERT_TRUE(recording_.Add(row).ok());
  const std::string data = Data();
  EXPECT_THAT(data, HasSubstr(R"("phases":{"answer":{"schema":"vramscope.phases/1")"));
  EXPECT_THAT(data,
              HasSubstr(R"("notes":[],"windows":[[300,1000,300],[200,300,210],[50,200,50]]})"));
}

TEST_F(PageTest, NvtxCountersAreOfTheDevicesOfTheirProcess) {
  tables::Tables& tables = recording_.edit();
  tables.nvtx_counters.push_back({tables::ProcessId{1}, {}, recording_.Intern("low")});
  tables.nvtx_counters.push_back(
      {tables::ProcessId{1}, tables::DeviceId{1}, recording_.Intern("high")});
  tables.nvtx_counters.push_back({tables::ProcessId{0}, {}, recording_.Intern("other")});
  for (const auto& [counter, bytes] : {std::pair(1u, 5), {2u, 90}, {2u, -3}, {3u, 1}})
    tables.nvtx_samples.push_back({tables::NvtxCounterId{counter}, kStart + 10, bytes});
  EXPECT_THAT(
      Data(),
      HasSubstr(R"("lines":[{"name":"high","process":1,"devices":[0],"samples":[[10,90],[10,-3]]},)"
                R"({"name":"low","process":1,"devices":[0],"samples":[[10,5]]},)"
                R"({"name":"other","process":0,"devices":[],"samples":[[10,1]]}])"));
  PageLimits limits;
  limits.nvtx_counters = 1;
  limits.nvml_samples = 1;
  EXPECT_THAT(
      Data(limits),
      HasSubstr(R"("lines":[{"name":"high","process":1,"devices":[0],"samples":[[10,90]]}])"));
}

TEST_F(PageTest, TheHostsMemoryIsALineOfEachDevice) {
  tables::HostSampleRow sample;
  sample.time_ns = kStart + 20;
  sample.resident_bytes = 700;
  sample.limit_bytes = 900;
  recording_.edit().host_samples.push_back(sample);
  EXPECT_THAT(
      Data(),
      HasSubstr(
          R"("lines":[{"name":"host: resident","process":-1,"devices":[0],"samples":[[20,700]]},)"
          R"({"name":"host: its limit","process":-1,"devices":[0],"samples":[[20,900]]}])"));
}

TEST_F(PageTest, SamplesCountFromTheStartAndAreThinnedToTheirHighest) {
  for (const auto& [time_ns, used_bytes] : {std::pair(1, 30), {2, 50}, {3, 40}}) {
    tables::SampleRow sample;
    sample.device = tables::DeviceId{1};
    sample.time_ns = sample.begin_ns = sample.end_ns = kStart + time_ns;
    sample.used_bytes = static_cast<uint64_t>(used_bytes);
    recording_.edit().samples.push_back(sample);
  }
  EXPECT_THAT(Data(), HasSubstr(R"("nvml":[[1,30],[2,50],[3,40]])"));
  PageLimits limits;
  limits.nvml_samples = 2;
  EXPECT_THAT(Data(limits), HasSubstr(R"("nvml":[[2,50],[3,40]])"));
}

TEST_F(PageTest, PageIsWholeAndNamesFromTheProgramCannotLeaveTheData) {
  recording_.edit().session.name = "<b>&</b>";
  recording_.edit().sites[2].module = recording_.Intern("</script><script>alert(1)</script>");
  Add(2, 20, 30, 1);
  ASSERT_TRUE(WriteHtml(recording_, Path()).ok());
  std::ifstream file(Path(), std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  const std::string page = text.str();
  std::remove(Path().c_str());
  EXPECT_THAT(page, StartsWith("<!doctype html>"));
  EXPECT_THAT(page, HasSubstr("<title>&lt;b&gt;&amp;&lt;/b&gt;"));
  EXPECT_THAT(page, HasSubstr(R"(\u003c/script>\u003cscript>alert(1))"));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert(1)")));
  EXPECT_THAT(page, HasSubstr(std::string(ViewerScript())));
  EXPECT_THAT(page, HasSubstr(std::string(ViewerStyle())));
  EXPECT_THAT(page, Not(HasSubstr("{{DATA}}")));
  EXPECT_THAT(page, HasSubstr("</html>"));
}

class UnreadableRecording : public FakeRecording {
 public:
  util::Status Read(size_t, uint32_t, tables::AllocationFrame*) const override {
    return util::Status::Error("no such thing");
  }
};

TEST(DamagedPage, LeavesNoFile) {
  const std::string path = testing::TempDir() + "vramscope_damaged.html";
  UnreadableRecording recording;
  recording.edit().accounts.push_back(
      {recording.AddProcess(1, "a"), recording.AddDevice(tables::DeviceKind::kCpu, -1), 0, 0});
  ASSERT_TRUE(recording.Add({.end_ns = tables::kNever}).ok());
  EXPECT_EQ(WriteHtml(recording, path).message(), "no such thing");
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(PageTest, UnwritablePathIsNamed) {
  EXPECT_THAT(WriteHtml(recording_, "/nonexistent/page.html").message(),
              HasSubstr("/nonexistent/page.html"));
}

}  // namespace

namespace {

std::string Packed(const std::string& json, size_t most_plain_bytes, size_t piece) {
  std::string text;
  PageScriptData data([&](std::string_view part) { text += part; }, most_plain_bytes);
  for (size_t at = 0; at < json.size(); at += piece)
    data.Write(std::string_view(json).substr(at, piece));
  data.Finish();
  return text;
}

std::string FromBase64(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const size_t digit =
        std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
            .find(c);
    if (digit == std::string_view::npos)
      break;
    bits = (bits << 6) | static_cast<uint32_t>(digit);
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes += static_cast<char>((bits >> held) & 0xff);
    }
  }
  return bytes;
}

std::string Inflated(std::string bytes, size_t size) {
  std::string out(size + 1, '\0');
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, -15), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

TEST(PageScriptData, LittleIsWrittenAsItIsAndEndsNoScript) {
  EXPECT_EQ(Packed(R"({"a":"</script>"})", 100, 3), R"({"a":"\u003c/script>"})");
  EXPECT_EQ(Packed("", 100, 1), "");
}

TEST(PageScriptData, MuchIsPackedAndComesBack) {
  for (const size_t size : {101u, 102u, 103u, 5000u, 300'000u}) {
    std::string json;
    for (uint32_t i = 1; json.size() < size; i = i * 1664525 + 1013904223)
      json += std::to_string(i % 97) + (i % 7 == 0 ? "</script>" : ",");
    json.resize(size);
    for (const size_t piece : {size_t{1000}, size_t{64}, size}) {
      const std::string text = Packed(json, 100, piece);
      ASSERT_TRUE(text.starts_with(kPackedMark));
      EXPECT_EQ(text.find('<'), std::string::npos);
      EXPECT_EQ((text.size() - kPackedMark.size()) % 4, 0u);
      EXPECT_EQ(Inflated(FromBase64(std::string_view(text).substr(kPackedMark.size())), size),
                json);
    }
  }
}

}  // namespace

}  // namespace vramscope::output
