// SPDX-License-Identifier: Apache-2.0
// The report of an instant, on recordings made by hand.
#include "query/dimensions/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"
#include "query/testing/random_recording.h"
#include "tables/imported.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseInstantTest, KnowsEveryForm) {
  EXPECT_EQ(ParseInstant("peak")->kind, Instant::Kind::kPeak);
  EXPECT_EQ(ParseInstant("end")->kind, Instant::Kind::kEnd);
  EXPECT_EQ(ParseInstant("1.5")->kind, Instant::Kind::kSeconds);
  EXPECT_EQ(ParseInstant("1.5")->time_ns, 1'500'000'000);
  // As headers print it.
  EXPECT_EQ(ParseInstant("1.5 s")->time_ns, 1'500'000'000);
  EXPECT_EQ(ParseInstant("10.009984087s")->time_ns, 10'009'984'087);
  EXPECT_EQ(ParseInstant("allocated-peak")->kind, Instant::Kind::kAllocatedPeak);
  EXPECT_EQ(ParseInstant("own-peak")->kind, Instant::Kind::kOwnPeak);
  EXPECT_EQ(ParseInstant("@12345678901234")->time_ns, 12345678901234);
  EXPECT_EQ(ParseInstant("iter:7")->iteration, 7);
  EXPECT_EQ(ParseInstant("mark:after load")->mark, "after load");
}

TEST(ParseInstantTest, RefusesTheRestWithTheForms) {
  for (const char* text : {"", "Peak", "1.5 m", "s", "@", "@-1", "-3", "iter:", "iter:x",
                           "mark:", "nan", "inf", "1e300"}) {
    const auto instant = ParseInstant(text);
    ASSERT_FALSE(instant.ok()) << text;
    EXPECT_THAT(instant.status().message(), HasSubstr("mark:NAME"));
  }
}

TEST(ParseDimensionTest, KnowsNamesAndNearlyNames) {
  EXPECT_EQ(*ParseDimension("size_class"), Dimension::kSizeClass);
  EXPECT_EQ(*ParseDimension("layer"), Dimension::kModule);
  EXPECT_STREQ(DimensionName(Dimension::kLine), "line");
  EXPECT_EQ(ParseDimension("modul").status().message(),
            "unknown dimension 'modul'; did you mean 'module'?");
  for (const char* name : {"layers", "lyer"}) {
    EXPECT_EQ(ParseDimension(name).status().message(),
              "unknown dimension '" + std::string(name) + "'; did you mean 'layer'?");
  }
  EXPECT_THAT(ParseDimension("colour").status().message(), HasSubstr("device, process, rank"));
}

// A GPU with one process: a segment with two blocks, a context, and what another process has.
class ReportTest : public ::testing::Test {
 protected:
  ReportTest() {
    tables::Tables& tables = builder_.tables;
    tables.session.begin_ns = 100;
    tables.session.end_ns = 1100;
    gpu_ = builder_.Device(tables::DeviceKind::kGpu, 0);
    const auto other_gpu = builder_.Device(tables::DeviceKind::kGpu, 1);
    others_ = builder_.Account({}, gpu_);
    builder_.Account({}, other_gpu);
    process_ = builder_.Process(7, 900);
    account_ = builder_.Account(process_, gpu_);
    pytorch_ = builder_.Text("PyTorch");
    tables::SiteRow context = builder_.SiteOf(account_, Part::kContext, Category::kDriver);
    context.owner = builder_.Text("driver-owned");
    context.trigger = builder_.Text("cuCtxCreate");
    builder_.Step(builder_.Counter(builder_.Site(context)), 150, 500);
    tables::SiteRow other = builder_.SiteOf(others_, Part::kOtherProcesses);
    builder_.Step(builder_.Counter(builder_.Site(other)), 100, 40);
    tables::SiteRow free = builder_.SiteOf(account_, Part::kCached, Category::kCached);
    free.owner = pytorch_;
    segment_ = builder_.Segment(builder_.Site(free), Part::kFragmentation);
    tables::SiteRow backing = free;
    backing.backing = 1;
    builder_.Row(builder_.Site(backing), 200, tables::kNever, 1000, segment_);
    block_ = builder_.SiteOf(account_, Part::kAllocated, Category::kActivation);
    block_.owner = block_.allocator = pytorch_;
    block_.phase = format::Phase::kForward;
    block_.module = builder_.Text("layer.0");
    activation_ = builder_.Site(block_);
    builder_.Row(activation_, 300, 600, 400, segment_, 100);
    block_.category = Category::kParameter;
    block_.module = builder_.Text("layer");
    parameter_ = builder_.Site(block_);
    builder_.Row(parameter_, 310, tables::kNever, 200, segment_);
  }

  Report Of(const std::string& at, std::vector<Dimension> by = {}) {
    ReportQuery query = query_;
    const auto instant = ParseInstant(at);
    EXPECT_TRUE(instant.ok());
    query.at = *instant;
    query.by = std::move(by);
    auto report = MakeReport(*builder_.Make(), query);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return *std::move(report);
  }
  std::string ErrorOf(const std::string& at) {
    ReportQuery query;
    query.at = *ParseInstant(at);
    return MakeReport(*builder_.Make(), query).status().message();
  }
  // "GPU path / of / it: bytes x count".
  static std::vector<std::string> Lines(const Report& report) {
    std::vector<std::string> lines;
    for (const ReportRow& row : report.rows) {
      std::string line;
      for (const std::string& level : row.path)
        line += (line.empty() ? "" : " / ") + level;
      lines.push_back(line + ": " + std::to_string(row.bytes) + " x " + std::to_string(row.count));
    }
    return lines;
  }
  void Sample(int64_t time_ns, uint64_t used, int64_t ledger, int64_t low = 0, int64_t high = 0) {
    tables::SampleRow row;
    row.device = gpu_;
    row.time_ns = row.begin_ns = row.end_ns = time_ns;
    row.used_bytes = used;
    row.ledger_bytes = ledger;
    row.low_bytes = low;
    row.high_bytes = high;
    row.counted = 1;
    builder_.tables.samples.push_back(row);
  }

  RecordingBuilder builder_;
  ReportQuery query_;
  tables::DeviceId gpu_;
  tables::ProcessId process_;
  tables::AccountId others_, account_;
  tables::StringId pytorch_;
  tables::SegmentId segment_;
  tables::SiteRow block_;
  tables::SiteId activation_, parameter_;
};

TEST_F(ReportTest, ShowsTheLevelsOfTheLedger) {
  const Report report = Of("@400");
  EXPECT_THAT(Lines(report),
              ElementsAre("driver-owned / context / cuCtxCreate: 500 x 1",
                          "PyTorch / fragmentation: 400 x 0", "PyTorch / activation: 300 x 1",
                          "PyTorch / parameter: 200 x 1", "PyTorch / rounding: 100 x 0",
                          "other processes: 40 x 0"));
  ASSERT_EQ(report.devices.size(), 1u);  // the other GPU has no process
  EXPECT_EQ(report.devices[0].ledger_bytes, 1540u);
  ASSERT_EQ(report.processes.size(), 1u);
  EXPECT_EQ(report.processes[0].ledger_bytes, 1500u);
  EXPECT_EQ(report.rows[0].pid, 7u);
  EXPECT_FALSE(report.rows.back().pid.has_value());
  EXPECT_EQ(report.block_bytes, 600u);
  EXPECT_EQ(report.block_bytes_with_category, 600u);
}

TEST_F(ReportTest, FreeBytesAreCachedWhereNothingOfASegmentIsInUse) {
  EXPECT_THAT(Lines(Of("@250")), ElementsAre("PyTorch / cached: 1000 x 0",
                                             "driver-owned / context / cuCtxCreate: 500 x 1",
                                             "other processes: 40 x 0"));
}

TEST_F(ReportTest, GroupsByAnything) {
  EXPECT_THAT(
      Lines(Of("@400", {Dimension::kModule})),
      ElementsAre("(none): 900 x 1", "layer.0: 400 x 1", "layer: 200 x 1", "(none): 40 x 0"));
  EXPECT_THAT(Lines(Of("@400", {Dimension::kOwner, Dimension::kApi})),
              ElementsAre("PyTorch / caching allocator: 600 x 2", "driver-owned / (none): 500 x 1",
                          "PyTorch / (free in PyTorch's segments): 400 x 0",
                          "other processes / (none): 40 x 0"));
  EXPECT_THAT(Lines(Of("@400", {Dimension::kSizeClass, Dimension::kLifetime})),
              ElementsAre("(none) / (none): 500 x 0", "below 1 KiB / (none): 500 x 1",
                          "below 1 KiB / below 1 ms: 300 x 1", "below 1 KiB / never freed: 200 x 1",
                          "(none) / (none): 40 x 0"));
  EXPECT_THAT(Lines(Of("@400", {Dimension::kPhase})),
              ElementsAre("(none): 900 x 1", "forward: 600 x 2", "(none): 40 x 0"));
}

TEST_F(ReportTest, TagThatReadsNone_Rows_AreNotThoseWithoutATag) {
  builder_.tables.sites[parameter_.value].tag = builder_.Text("(none)");
  const Report report = Of("@400", {Dimension::kTag});
  EXPECT_THAT(Lines(report), ElementsAre("(none): 1300 x 2", "(none): 200 x 1", "(none): 40 x 0"));
  EXPECT_EQ(report.rows[0].nameless, 1u);
  EXPECT_EQ(report.rows[1].nameless, 0u);
}

TEST_F(ReportTest, ConditionNone_Rows_AreThoseWithoutATag) {
  builder_.tables.sites[parameter_.value].tag = builder_.Text("(none)");
  query_.where = {{Dimension::kTag, "(none)"}};
  EXPECT_THAT(Lines(Of("@400", {Dimension::kTag})),
              ElementsAre("(none): 1300 x 2", "(none): 40 x 0"));
}

TEST_F(ReportTest, IterationIsThatOfTheAllocation) {
  builder_.tables.iterations = {{process_, 0, 290, 305}, {process_, 1, 305, 308}};
  EXPECT_THAT(
      Lines(Of("@400", {Dimension::kIteration})),
      ElementsAre("(none): 900 x 1", "0: 400 x 1", "(after the last): 200 x 1", "(none): 40 x 0"));
}

TEST_F(ReportTest, ConditionsNarrowRowsAndLists) {
  query_.where = {{Dimension::kModule, "layer"}};
  Report report = Of("@400", {Dimension::kModule});
  EXPECT_THAT(Lines(report), ElementsAre("layer.0: 400 x 1", "layer: 200 x 1"));
  EXPECT_EQ(report.devices[0].ledger_bytes, 600u);
  EXPECT_EQ(report.top_modules.size(), 2u);
  query_.where = {{Dimension::kLifetime, "never freed"}, {Dimension::kDevice, "gpu0"}};
  EXPECT_THAT(Lines(Of("@400")), ElementsAre("PyTorch / parameter: 200 x 1"));
  query_.where = {{Dimension::kDevice, "gpu1"}};
  EXPECT_THAT(Lines(Of("@400")), ElementsAre());
}

// NVML's figure, the residual and what calls under way have are those of the report without it.
TEST_F(ReportTest, AConditionOnTheDeviceSelectsAllOfIt) {
  builder_.tables.changes = {{gpu_, 100}, {gpu_, 150}, {gpu_, 200}, {gpu_, 700}};
  Sample(420, 1560, 1540, 0, 10);
  const Report all = Of("@320");
  query_.where = {{Dimension::kDevice, "0"}};
  const Report one = Of("@320");
  EXPECT_EQ(Lines(one), Lines(all));
  EXPECT_EQ(one.devices[0].nvml_bytes, 1560u);
  EXPECT_EQ(one.devices[0].in_transit_bytes, 10);
  EXPECT_EQ(one.devices[0].residual_bytes, 10);
  EXPECT_FALSE(Of("peak").devices[0].own_peak);
  query_.where = {{Dimension::kDevice, "1"}};
  EXPECT_FALSE(Of("@320").devices[0].nvml_bytes);
  query_.where = {{Dimension::kDevice, "0"}, {Dimension::kModule, "layer"}};
  EXPECT_FALSE(Of("@320").devices[0].nvml_bytes);
}

TEST_F(ReportTest, TheRestIsOneRow) {
  query_.top = 1;
  Report report = Of("@400", {Dimension::kCategory});
  CutRows(1, &report.rows);
  EXPECT_THAT(Lines(report), ElementsAre("driver: 500 x 1", "(rest): 1040 x 2"));
  CutRows(0, &report.rows);
  EXPECT_EQ(report.rows.size(), 2u);
}

// What is printed without its process is not cut by process.
TEST(CutRowsTest, APathIsWhole) {
  const tables::DeviceId gpu{1};
  const tables::DeviceId other{2};
  Report report;
  report.rows = {{gpu, 7, {"input"}, 50, 1},     {gpu, 7, {"parameter"}, 40, 1},
                 {gpu, 8, {"parameter"}, 30, 1}, {gpu, 8, {"input"}, 10, 1},
                 {gpu, 8, {"driver"}, 5, 1},     {gpu, std::nullopt, {"driver"}, 2, 0},
                 {other, 7, {"parameter"}, 1, 1}};
  CutRows(1, &report.rows);
  std::vector<std::string> rows;
  for (const ReportRow& row : report.rows)
    rows.push_back(std::to_string(row.device.value) + " " + std::to_string(row.pid.value_or(0)) +
                   " " + row.path[0] + " " + std::to_string(row.bytes));
  EXPECT_THAT(rows, ElementsAre("1 7 parameter 40", "1 8 parameter 30", "1 0 (rest) 67",
                                "2 7 parameter 1"));
}

TEST_F(ReportTest, KnowsThePeaksOfWhatIsAllocatedAndOfWhatIsAskedFor) {
  // A context that goes: the device peaks before most is allocated.
  const auto streams =
      builder_.Counter(builder_.Site(builder_.SiteOf(account_, Part::kStreams, Category::kDriver)));
  builder_.Step(streams, 250, 700);
  builder_.Step(streams, 305, -700);
  Report peak = Of("peak");
  EXPECT_EQ(peak.devices[0].at_ns, 300);
  EXPECT_EQ(peak.devices[0].allocated_bytes, 400u);
  EXPECT_EQ(peak.devices[0].reserved_bytes, 1000u);
  EXPECT_EQ(peak.devices[0].allocated_peak->bytes, 600u);
  EXPECT_EQ(peak.devices[0].allocated_peak->time_ns, 310);
  EXPECT_FALSE(peak.devices[0].own_peak);
  EXPECT_EQ(Of("allocated-peak").devices[0].at_ns, 310);
  EXPECT_EQ(Of("allocated-peak").devices[0].at_kind, "allocated-peak");
  EXPECT_EQ(Of("own-peak").devices[0].at_ns, 300);  // of all there is
  query_.where = {{Dimension::kCategory, "fragmentation"}};
  peak = Of("peak");
  EXPECT_EQ(peak.devices[0].ledger_bytes, 600u);
  EXPECT_EQ(peak.devices[0].own_peak->bytes, 800u);
  EXPECT_EQ(peak.devices[0].own_peak->time_ns, 600);
  EXPECT_EQ(Of("own-peak").devices[0].ledger_bytes, 800u);
  query_.where = {{Dimension::kCategory, "gradient"}};
  EXPECT_FALSE(Of("peak").devices[0].own_peak);
  query_.where = {{Dimension::kLifetime, "never freed"}};
  EXPECT_FALSE(Of("peak").devices[0].own_peak);
  query_.at.kind = Instant::Kind::kOwnPeak;
  EXPECT_EQ(MakeReport(*builder_.Make(), query_).status().message(),
            "--at own-peak does not go with --where lifetime: use a dimension that does not change "
            "with time");
}

TEST_F(ReportTest, KnowsItsInstants) {
  // The peak: of equal totals that with most in use.
  Report peak = Of("peak");
  EXPECT_EQ(peak.devices[0].at_kind, "peak");
  EXPECT_EQ(peak.devices[0].at_ns, 310);
  EXPECT_EQ(Of("end").devices[0].at_ns, 900);
  EXPECT_EQ(Of("0.0000003").devices[0].at_ns, 400);
  builder_.tables.marks = {{350, builder_.Text("loaded"), process_}};
  EXPECT_EQ(Of("mark:loaded").devices[0].at_ns, 350);
  EXPECT_EQ(ErrorOf("mark:gone"), "no mark 'gone' in the recording; it has: 'loaded'");
  EXPECT_EQ(ErrorOf("@5"), "--at @5 is outside the recording, which runs from @100 to @1100");
  EXPECT_EQ(ErrorOf("2"), "--at 2.000 s is outside the recording, which lasts 0.000 s");
  EXPECT_THAT(ErrorOf("iter:0"), HasSubstr("a torch optimizer's step ends one"));
  builder_.tables.notes = {{builder_.Text(tables::kImportedNote), builder_.Text("a.pickle")}};
  EXPECT_THAT(ErrorOf("iter:0"), HasSubstr("in an import, ProfilerStep#N"));
  builder_.tables.iterations = {{process_, 0, 290, 305}, {process_, 1, 305, 330}};
  EXPECT_EQ(ErrorOf("iter:2"), "--at iter:2: the recording has iterations 0 to 1");
  EXPECT_EQ(Of("iter:0").devices[0].at_ns, 300);
  EXPECT_EQ(Of("@305").devices[0].at_iteration, 0);
  EXPECT_EQ(Of("@350").devices[0].at_iteration, std::nullopt);
}

TEST_F(ReportTest, CheckpointedProcessesHaveNothing) {
  builder_.tables.checkpointed = {{account_, 350, 450}};
  EXPECT_THAT(Lines(Of("@400")), ElementsAre("other processes: 40 x 0"));
  EXPECT_EQ(Of("@450").devices[0].ledger_bytes, 1540u);
}

TEST_F(ReportTest, ASampleIsOfTheInstantsWithoutAChangeBetween) {
  builder_.tables.changes = {{gpu_, 100}, {gpu_, 150}, {gpu_, 200}, {gpu_, 700}};
  Sample(420, 1550, 1540);
  Sample(800, 9999, 9000);
  const Report report = Of("@320");
  EXPECT_EQ(report.devices[0].nvml_bytes, 1550u);
  EXPECT_EQ(report.devices[0].residual_bytes, 10);
  EXPECT_FALSE(Of("@160").devices[0].nvml_bytes.has_value());
  // Calls under way explain it: a row of its own.
  builder_.tables.samples.clear();
  Sample(420, 1550, 1540, 0, 64);
  const Report transit = Of("@320");
  EXPECT_EQ(transit.devices[0].in_transit_bytes, 10);
  EXPECT_EQ(transit.devices[0].residual_bytes, 0);
  EXPECT_EQ(Lines(transit).back(), "driver-owned / in transit: 10 x 0");
  EXPECT_EQ(transit.residuals[0].samples_in_transit, 1u);
}

// Another process, on another device, ends later. Bytes of no process are read at that time.
TEST_F(ReportTest, TheEndOfADeviceIsThatOfItsOwnProcesses) {
  builder_.Account(builder_.Process(8, 1000), tables::DeviceId{2});
  builder_.tables.changes = {{gpu_, 950}};
  Sample(920, 1540, 1540);
  const Report report = Of("end");
  EXPECT_EQ(report.devices[0].at_ns, 900);
  EXPECT_EQ(report.devices[0].nvml_bytes, 1540u);
}

TEST_F(ReportTest, SamplesThatNothingExplainsBreakTheInvariant) {
  Sample(420, 1540 + 3 * kMiB, 1540);
  EXPECT_TRUE(Of("@400").invariants[3].holds);
  Sample(430, 1540 + 5 * kMiB, 1540);
  const Report report = Of("@400");
  EXPECT_FALSE(report.invariants[3].holds);
  EXPECT_THAT(report.invariants[3].detail, HasSubstr("1 of 2 samples"));
  EXPECT_THAT(report.invariants[3].detail, HasSubstr("GPU 0 at @430"));
  EXPECT_EQ(report.residuals[0].worst_bytes, static_cast<int64_t>(5 * kMiB));
  builder_.tables.samples.back().high_bytes = 2 * kMiB;
  EXPECT_TRUE(Of("@400").invariants[3].holds);
}

TEST_F(ReportTest, RowsThatDoNotSumToTheLedgerBreakTheInvariant) {
  Sample(420, 1540, 1541);
  const Report report = Of("@400");
  EXPECT_FALSE(report.invariants[0].holds);
  EXPECT_THAT(report.invariants[0].detail, HasSubstr("rows 1540, ledger 1541"));
  builder_.tables.samples.clear();
  tables::PeakRow peak;
  peak.device = gpu_;
  peak.time_ns = 310;
  peak.bytes = 1500;
  builder_.tables.peaks = {peak};
  EXPECT_FALSE(Of("peak").invariants[0].holds);
  builder_.tables.peaks[0].bytes = 1540;
  EXPECT_TRUE(Of("peak").invariants[0].holds);
  builder_.tables.violations = {{tables::InvariantKind::kFreedTwice, 3, builder_.Text("0x10")}};
  EXPECT_EQ(Of("peak").invariants[1].detail, "3 times; first: 0x10");
}

TEST_F(ReportTest, LinesAreTheUsersOwn) {
  const auto frame = [&](const std::string& file, uint32_t line, bool library) {
    tables::FrameRow row;
    row.file = builder_.Text(file);
    row.line = line;
    row.library = library ? 1 : 0;
    return tables::FrameId{RecordingBuilder::Append(builder_.tables.frames, row)};
  };
  const auto stack = [&](tables::StackId parent, tables::FrameId at) {
    return tables::StackId{RecordingBuilder::Append(builder_.tables.stacks, {parent, at})};
  };
  const auto main = stack({}, frame("/home/u/train.py", 3, false));
  const auto trainer =
      stack(main, frame("/opt/lib/site-packages/transformers/trainer.py", 88, true));
  const auto torch = stack(trainer, frame("/opt/lib/site-packages/torch/nn.py", 5, true));
  builder_.tables.sites[activation_.value].place = torch;
  builder_.tables.sources = {{builder_.tables.frames[1].file, 3, builder_.Text("train()")}};
  Report report = Of("@400", {Dimension::kLine});
  EXPECT_THAT(Lines(report),
              ElementsAre("(no stack): 700 x 2", "(free in PyTorch's segments): 400 x 0",
                          "train.py:3: 400 x 1", "(no stack): 40 x 0"));
  ASSERT_EQ(report.top_lines.size(), 1u);
  EXPECT_EQ(report.top_lines[0].source, "train()");
  EXPECT_EQ(report.top_lines[0].bytes, 400u);  // with its rounding
  EXPECT_EQ(report.top_churn[0].bytes, 400u);
  query_.own = {"transformers"};
  EXPECT_THAT(Lines(Of("@400", {Dimension::kLine})),
              ElementsAre("(no stack): 700 x 2", "(free in PyTorch's segments): 400 x 0",
                          "trainer.py:88: 400 x 1", "(no stack): 40 x 0"));
  // A tag tells apart what has no stack.
  builder_.tables.sites[activation_.value].place = {};
  builder_.tables.sites[activation_.value].tag = builder_.Text("before the trace");
  EXPECT_THAT(Lines(Of("@400", {Dimension::kLine})),
              ::testing::Contains("(no stack: before the trace): 400 x 1"));
}

TEST_F(ReportTest, TextsBeyondTheBudgetAreRefused) {
  tables::Tables& tables = builder_.tables;
  tables.session.path = "a.vram";
  const tables::FrameId frame{builder_.Append(
      tables.frames, tables::FrameRow{.function = builder_.Text(std::string(200'000, 'f'))})};
  for (int i = 0; i < 1000; ++i) {
    block_.stack = tables::StackId{builder_.Append(tables.stacks, tables::StackRow{{}, frame})};
    builder_.Row(builder_.Site(block_), 300, tables::kNever, 1);
  }
  ReportQuery query;
  query.at = *ParseInstant("@500");
  EXPECT_TRUE(MakeReport(*builder_.Make(), query).ok());
  query.by = {Dimension::kPython};
  EXPECT_THAT(MakeReport(*builder_.Make(), query).status().message(),
              HasSubstr("a.vram: its 200000 bytes of names and stacks would take more than 64"));
}

TEST_F(ReportTest, AStackThatCallsItselfEnds) {
  tables::Tables& tables = builder_.tables;
  const tables::FrameId frame{
      builder_.Append(tables.frames, tables::FrameRow{.function = builder_.Text("f")})};
  const tables::StackId loop{static_cast<uint32_t>(tables.stacks.size())};
  tables.stacks.push_back({loop, frame});
  block_.stack = block_.place = loop;
  builder_.Row(builder_.Site(block_), 300, tables::kNever, 1);
  EXPECT_THAT(Lines(Of("@500", {Dimension::kLine})), ::testing::Contains("f: 1 x 1"));
  EXPECT_THAT(Lines(Of("@500", {Dimension::kPython})), ::testing::Contains("f;f: 1 x 1"));
}

}  // namespace
}  // namespace vramscope::query
