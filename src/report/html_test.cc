// SPDX-License-Identifier: Apache-2.0
#include "report/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "engine/model/parts.h"
#include "report/fake_analysis.h"
#include "report/html_data.h"
#include "report/viewer_assets.h"

namespace vramscope::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kStart = 1'000'000'000'000;

class PageAnalysis : public FakeAnalysis {
 public:
  util::Result<std::vector<engine::Timeline>> MakeTimelines(size_t) override { return timelines; }
  util::Result<engine::Lives> MakeLives(size_t) override { return page_lives; }
  std::vector<engine::Mark> Marks() const override { return marks; }

  std::vector<engine::Timeline> timelines;
  engine::Lives page_lives;
  std::vector<engine::Mark> marks;
};

engine::Life MakeLife(int16_t device, int64_t alloc_ns, int64_t free_ns, trace::StackId stack) {
  engine::Life life;
  life.device = trace::DeviceId{device};
  life.process = trace::ProcessId{0};
  life.address = 0x7f00;
  life.bytes = 512;
  life.alloc_ns = alloc_ns;
  life.free_ns = free_ns;
  life.stack = stack;
  life.place = stack;
  return life;
}

std::string PageData(engine::Analysis& analysis, const PageLimits& limits = {}) {
  std::string text;
  util::JsonWriter json(&text);
  const util::Status status = WritePageData(analysis, limits, json);
  EXPECT_TRUE(status.ok()) << status.message();
  return text;
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class HtmlTest : public ::testing::Test {
 protected:
  HtmlTest() { analysis_.report = TrainingReport(analysis_.trace_); }

  std::string Path() const { return testing::TempDir() + "vramscope_html_test.html"; }

  PageAnalysis analysis_;
};

TEST_F(HtmlTest, HeadSaysWhatWasRecorded) {
  const std::string data = PageData(analysis_);
  EXPECT_THAT(data, AllOf(HasSubstr(R"("schema":"vramscope.page/1")"),
                          HasSubstr(R"("command":"python examples/train_gpt2.py --steps 20")"),
                          HasSubstr(R"("recorded_at":"2026-09-21T14:13:20Z")"),
                          HasSubstr(R"("duration_ns":21400000000)"),
                          HasSubstr(R"("finished":true)"),
                          HasSubstr(R"("schema":"vramscope.report/1")")));
}

TEST_F(HtmlTest, RecordingThatWasCutOffLastsUntilTheLastThingKnown) {
  analysis_.trace_.session().end_ns = 0;
  EXPECT_THAT(PageData(analysis_), HasSubstr(R"("duration_ns":0)"));
  analysis_.page_lives.lives = {MakeLife(0, kStart + 70, INT64_MAX, {}),
                                MakeLife(0, kStart + 20, kStart + 90, {})};
  EXPECT_THAT(PageData(analysis_), HasSubstr(R"("duration_ns":90)"));
}

TEST_F(HtmlTest, LivesAreColumnsInOrderOfAllocationFromTheStart) {
  analysis_.page_lives.paths = {{"PyTorch", "allocated"}};
  analysis_.page_lives.lives = {MakeLife(0, kStart + 70, INT64_MAX, {}),
                                MakeLife(1, kStart + 20, kStart + 90, {})};
  EXPECT_THAT(
      PageData(analysis_),
      HasSubstr(R"("lives":{"device":[1,0],"process":[0,0],"bytes":[512,512],)"
                R"("alloc":[20,70],"free":[90,-1],"stack":[0,0],"place":[0,0],"path":[0,0],)"
                R"("category":[0,0],"module":[0,0],"name":[0,0],)"
                R"("address":["7f00","7f00"]},"paths":[["PyTorch","allocated"]],)"
                R"("categories":["parameter","gradient",)"));
}

TEST_F(HtmlTest, NamesAreThoseThatLivesUseEachOnce) {
  analysis_.page_lives.names = {"", "unused", "h.0.mlp", "h.0.mlp.weight"};
  engine::Life weight = MakeLife(0, kStart, INT64_MAX, {});
  weight.module = 2;
  weight.name = 3;
  engine::Life activation = MakeLife(0, kStart + 1, INT64_MAX, {});
  activation.category = static_cast<uint32_t>(engine::Category::kActivation);
  activation.module = 2;
  engine::Life damaged = MakeLife(0, kStart + 2, INT64_MAX, {});
  damaged.module = 99;
  analysis_.page_lives.lives = {weight, activation, damaged};
  const std::string data = PageData(analysis_);
  EXPECT_THAT(data, HasSubstr(R"("category":[0,4,0],"module":[1,1,0],"name":[2,0,0],)"));
  EXPECT_THAT(data, HasSubstr(R"("names":["","h.0.mlp","h.0.mlp.weight"])"));
}

TEST_F(HtmlTest, ModulesHaveTheirClasses) {
  analysis_.report.top_modules = {
      {trace::DeviceId{0}, "h.0.mlp", "MLP", 5, 1, {}},
      {trace::DeviceId{1}, "h.0.mlp", "MLP", 5, 1, {}},
      {trace::DeviceId{0}, "solve/jacobi", "", 5, 1, {}},
  };
  EXPECT_THAT(PageData(analysis_), HasSubstr(R"("module_types":{"h.0.mlp":"MLP"})"));
}

TEST_F(HtmlTest, IterationsAreToldOnceAProcess) {
  engine::Iteration first;
  first.process = trace::ProcessId{0};
  first.device = trace::DeviceId{0};
  first.begin_ns = kStart + 10;
  first.end_ns = kStart + 30;
  engine::Iteration other_device = first;
  other_device.device = trace::DeviceId{1};
  engine::Iteration second = first;
  second.number = 1;
  second.begin_ns = kStart + 30;
  second.end_ns = kStart + 50;
  analysis_.iterations.iterations = {first, other_device, second};
  EXPECT_THAT(PageData(analysis_), HasSubstr(R"("iterations":[[0,0,10,30],[0,1,30,50]])"));
}

TEST_F(HtmlTest, LivesOfDevicesThatTheReportLacksAreLeftOut) {
  analysis_.page_lives.lives = {MakeLife(9, kStart, INT64_MAX, {})};
  EXPECT_THAT(PageData(analysis_), HasSubstr(R"("lives":{"device":[],)"));
}

TEST_F(HtmlTest, TablesHoldOnlyWhatLivesUseAndStacksOnce) {
  FakeTrace& trace = analysis_.trace_;
  trace.PythonStack({}, "unused", "/home/u/unused.py", 1);
  const trace::StackId outer = trace.PythonStack({}, "outer", "/home/u/a.py", 3);
  const trace::StackId inner =
      trace.PythonStack(outer, "inner", "/usr/lib/python3/dist-packages/torch/x.py", 4);
  analysis_.page_lives.paths = {{"PyTorch", "allocated"}};
  analysis_.page_lives.lives = {MakeLife(0, kStart, INT64_MAX, inner),
                                MakeLife(0, kStart, INT64_MAX, outer)};
  analysis_.page_lives.lives[1].place = inner;
  const std::string data = PageData(analysis_);
  EXPECT_THAT(data, HasSubstr(R"("stack":[2,1],"place":[0,2])"));
  EXPECT_THAT(data, HasSubstr(R"("stacks":[[0,0],[0,1],[1,2]])"));
  EXPECT_THAT(data, HasSubstr(R"("frames":[[0,0,0,0],[1,2,3,0],[3,4,4,2]])"));
  EXPECT_THAT(data, Not(HasSubstr("unused")));
}

TEST_F(HtmlTest, TimelinesCountFromTheStartAndSamplesAreThinnedToTheirHighest) {
  engine::Timeline timeline;
  timeline.device = trace::DeviceId{0};
  timeline.groups = {"driver"};
  timeline.time_ns = {kStart, kStart + 10};
  timeline.peak = {{5, 7}};
  timeline.nvml = {{kStart + 1, 30}, {kStart + 2, 50}, {kStart + 3, 40}};
  analysis_.timelines = {timeline};
  const std::string all = PageData(analysis_);
  EXPECT_THAT(all, HasSubstr(R"("groups":["driver"],"t":[0,10],"peak":[[5,7]])"));
  EXPECT_THAT(all, HasSubstr(R"("nvml":[[1,30],[2,50],[3,40]])"));
  PageLimits limits;
  limits.nvml_samples = 2;
  EXPECT_THAT(PageData(analysis_, limits), HasSubstr(R"("nvml":[[2,50],[3,40]])"));
}

TEST_F(HtmlTest, MarksAndResidualsNameThePagesDevices) {
  analysis_.marks = {{kStart + 5, "epoch 1"}};
  const std::string data = PageData(analysis_);
  EXPECT_THAT(data, HasSubstr(R"("marks":[[5,"epoch 1"]])"));
  EXPECT_THAT(data, HasSubstr(R"("residuals":[{"device":0,"samples":2140,)"));
}

TEST_F(HtmlTest, PageIsWholeAndNamesFromTheProgramCannotLeaveTheData) {
  analysis_.trace_.session().name = "<b>&</b>";
  analysis_.page_lives.paths = {{"</script><script>alert(1)</script>"}};
  ASSERT_TRUE(WriteHtml(analysis_, Path()).ok());
  const std::string page = ReadAll(Path());
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

TEST_F(HtmlTest, ErrorsOfTheAnalysisLeaveNoFile) {
  analysis_.failure = util::Status::Error("no such thing");
  EXPECT_EQ(WriteHtml(analysis_, Path()).message(), "no such thing");
  EXPECT_FALSE(std::filesystem::exists(Path()));
}

TEST_F(HtmlTest, UnwritablePathIsNamed) {
  EXPECT_THAT(WriteHtml(analysis_, "/nonexistent/page.html").message(),
              HasSubstr("/nonexistent/page.html"));
}

}  // namespace
}  // namespace vramscope::report
