// SPDX-License-Identifier: Apache-2.0
// Each writer against a file of expected text. To accept new text: VRAMSCOPE_BLESS=1 ./output_test,
// then read the difference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "output/answers.h"
#include "output/report_fixture.h"
#include "output/text/text.h"
#include "tables/imported.h"
#include "util/text.h"

namespace vramscope::output {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> SplitLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

TextOptions Options(bool utf8) {
  TextOptions options;
  options.style.utf8 = utf8;
  options.closing = {"Trace: train.vram"};
  return options;
}

TEST(WritersTest, TrainingText) {
  FakeRecording recording;
  const query::Report report = TrainingReport(recording);
  const std::string text = FormatText(report, recording, {}, Options(true));
  EXPECT_EQ(text, Expected("training.txt", text));
}

TEST(WritersTest, TrainingTextInAscii) {
  FakeRecording recording;
  const query::Report report = TrainingReport(recording);
  const std::string text = FormatText(report, recording, {}, Options(false));
  EXPECT_EQ(text, Expected("training_ascii.txt", text));
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || c >= ' '; }));
}

TEST(WritersTest, TroubledText) {
  FakeRecording recording;
  const query::Report report = TroubledReport(recording);
  const std::string text = FormatText(report, recording, {}, Options(true));
  EXPECT_EQ(text, Expected("troubled.txt", text));
}

TEST(WritersTest, StacksThatDifferInLibraryCodeAreToldApart) {
  FakeRecording recording;
  query::Report report = TrainingReport(recording);
  const tables::StackId main = recording.PythonStack({}, "main", "/home/u/gpt/train.py", 90);
  const tables::StackId adam = recording.PythonStack(
      main, "Adam.step", "/usr/lib/python3/dist-packages/torch/optim/adam.py", 178);
  const tables::DeviceId gpu = report.top_stacks[0].device;
  report.top_stacks = {{gpu, "train.py:90 in main", adam, 6ull << 30, 48},
                       {gpu, "train.py:90 in main", main, 4ull << 30, 48}};
  TextOptions options = Options(true);
  options.rows = 100;
  EXPECT_THAT(FormatText(report, recording, {}, options),
              AllOf(HasSubstr("train.py:90 in main, through adam.py:178 step\n"),
                    HasSubstr("train.py:90 in main\n")));
}

// They differ in what is not printed, as the layer.
TEST(WritersTest, StacksThatPrintAlikeAreOneRowAndListsSayWhatTheyLeaveOut) {
  FakeRecording recording;
  query::Report report = TrainingReport(recording);
  const tables::StackId main = recording.PythonStack({}, "main", "/home/u/gpt/train.py", 90);
  const tables::DeviceId gpu = report.top_stacks[0].device;
  const query::TopStack entry{gpu, "train.py:90 in main", main, 2ull << 30, 3};
  report.top_stacks = {entry, entry, entry};
  report.left_out = {{query::LeftOut::List::kStacks, gpu, 7, 1ull << 30, 9}};
  TextOptions options = Options(true);
  options.rows = 100;
  EXPECT_THAT(FormatText(report, recording, {}, options),
              HasSubstr("     6,144.0        9  train.py:90 in main x3\n"
                        "     1,024.0        9  (7 more)\n"));
  query::ReportQuery query;
  query.top = 1;
  const std::string cut = FormatText(report, recording, query, options);
  EXPECT_THAT(cut,
              testing::ContainsRegex("Top lines, live allocations\n.*\n.*\\([0-9] more\\)\n\n"));
}

TEST(WritersTest, PlacesAreMarkedWhereSeveralDevicesHaveSome) {
  FakeRecording recording;
  query::Report report = TrainingReport(recording);
  const tables::DeviceId gpu = report.top_lines[0].device;
  report.top_lines = {{gpu, "train.py:90 in main", "", 6ull << 30, 48},
                      {tables::DeviceId{2}, "data.py:7 in load", "", 4, 1}};
  TextOptions options = Options(true);
  options.rows = 100;
  // Four bytes of pinned memory do not make a second device that needs a name.
  EXPECT_THAT(FormatText(report, recording, {}, options),
              HasSubstr("       48  train.py:90 in main\n"));
  report.top_lines[1].bytes = 1ull << 30;
  EXPECT_THAT(FormatText(report, recording, {}, options),
              HasSubstr("       48  gpu0  train.py:90 in main\n"));
}

// Four GPUs that differ in their bytes: a row each, and tables of the fullest.
TEST(WritersTest, OfSeveralGpusARowEachAndTheFullestsTables) {
  FakeRecording recording;
  query::Report report = TrainingReport(recording);
  const query::Report one = report;
  report.devices.resize(1);
  report.devices[0].index = 0;
  for (uint32_t gpu = 1; gpu < 4; ++gpu) {
    const tables::DeviceId id{10 + gpu};
    report.devices.push_back(one.devices[0]);
    report.devices.back().device = id;
    report.devices.back().index = static_cast<int32_t>(gpu);
    report.devices.back().ledger_bytes -= gpu == 2 ? 0 : uint64_t{gpu} << 20;
    report.devices.back().ledger_bytes += gpu == 2 ? 1 << 20 : 0;
    for (query::TopLine entry : one.top_lines) {
      entry.device = id;
      entry.place = "gpu" + std::to_string(gpu) + ".py:1 in f";
      report.top_lines.push_back(std::move(entry));
    }
    for (query::ReportRow row : one.rows) {
      row.device = id;
      report.rows.push_back(std::move(row));
    }
  }
  const std::string text = FormatText(report, recording, {}, Options(true));
  EXPECT_THAT(text, HasSubstr("\n  4 GPUs, MiB             ledger       NVML    residual    full"
                              "    at, seconds\n"));
  EXPECT_THAT(text, HasSubstr("\n  GPU 0   NVIDIA H200   14,521.8   14,523.0   +1.20 MiB  10.1 %"
                              "          4.213\n"));
  EXPECT_THAT(text, HasSubstr("\n  GPU 2*  NVIDIA H200   14,522.8 "));
  EXPECT_THAT(text, HasSubstr("\nGPU 2  NVIDIA H200, 140 GiB "));
  EXPECT_THAT(text, HasSubstr("Top lines of GPU 2, live allocations"));
  EXPECT_THAT(text, HasSubstr("gpu2.py:1 in f"));
  for (const char* const other : {"\nGPU 0", "\nGPU 3", "gpu1.py", "model.py:112 in forward  att"})
    EXPECT_THAT(text, Not(HasSubstr(other)));
  EXPECT_LE(SplitLines(text).size(), kScreenRows);
  for (const std::string& line : SplitLines(text))
    EXPECT_LE(util::DisplayWidth(line), 80u) << line;
  // A pipe shows all of them.
  TextOptions piped = Options(true);
  piped.rows = 0;
  EXPECT_THAT(FormatText(report, recording, {}, piped),
              AllOf(HasSubstr("\n  4 GPUs, MiB "), HasSubstr("\nGPU 0  NVIDIA H200, 140 GiB "),
                    HasSubstr("\nGPU 3  NVIDIA H200, 140 GiB "), HasSubstr("gpu1.py:1 in f")));
}

// The innermost frames say which row it is; in a pipe also all that called them.
TEST(WritersTest, StacksBeginWithWhatTellsThemApart) {
  FakeRecording recording;
  query::Report report = TrainingReport(recording);
  const std::string outer = "train.py:90 in main;train.py:52 in step;module.py:1501 in call;";
  report.rows = {{tables::DeviceId{1}, 4711, {outer + "model.py:112 in attend"}, 6000, 3},
                 {tables::DeviceId{1}, 4711, {outer + "model.py:130 in forward"}, 3000, 2},
                 {tables::DeviceId{1}, 4711, {outer + "model.py:7 in embed"}, 900, 1}};
  report.devices.resize(1);
  query::ReportQuery query;
  query.by = {query::Dimension::kPython};
  query.top = 2;
  const std::string text = FormatText(report, recording, query, Options(true));
  const size_t attend = text.find("\n  model.py:112 in attend  ");
  const size_t forward = text.find("\n  model.py:130 in forward ");
  ASSERT_NE(attend, std::string::npos) << text;
  ASSERT_NE(forward, std::string::npos) << text;
  EXPECT_LT(attend, forward);
  EXPECT_LT(forward, text.find("\n  (1 more) "));
  EXPECT_THAT(text, HasSubstr("\n    < module.py:1501 in call < train.py:52 in step"));
}

TEST(WritersTest, AWideScreenIsForNames) {
  FakeRecording recording;
  query::Report report = TrainingReport(recording);
  const std::string name =
      "a.module.with.a.name.of.one.hundred." + std::string(64, 'x') + ".weight";
  report.rows = {{tables::DeviceId{1}, 4711, {name}, 6000, 3}};
  report.devices.resize(1);
  query::ReportQuery query;
  query.by = {query::Dimension::kModule};
  TextOptions options = Options(true);
  options.style.columns = 200;
  const std::string wide = FormatText(report, recording, query, options);
  EXPECT_THAT(wide, HasSubstr("\n  " + name + " "));
  options.style.columns = 80;
  EXPECT_THAT(FormatText(report, recording, query, options), Not(HasSubstr(name)));
  // Figures are next to the names, not at the other end of the screen.
  report.rows[0].path = {"short"};
  options.style.columns = 200;
  for (const std::string& line : SplitLines(FormatText(report, recording, query, options))) {
    if (line.starts_with("  short ")) {
      EXPECT_LE(util::DisplayWidth(line), 80u);
    }
  }
}

// With eight GPUs that would be a screen of zeros.
TEST(WritersTest, DevicesThatNobodyUsed) {
  FakeRecording recording;
  query::Report report;
  report.devices.resize(8);
  EXPECT_THAT(FormatText(report, recording, {}, Options(true)),
              HasSubstr("No device was used: no GPU memory was allocated while this was "
                        "recorded.\n`vramscope run --cpu` records CPU tensors.\n"));
  query::ReportQuery query;
  query.at.kind = query::Instant::Kind::kEnd;
  EXPECT_THAT(FormatText(report, recording, query, Options(true)), HasSubstr("ledger 0 B"));
}

TEST(WritersTest, RowsThatAreNotThere) {
  FakeRecording recording;
  query::Report report = TrainingReport(recording);
  report.rows.clear();
  for (query::DeviceReport& device : report.devices) {
    device.ledger_bytes = 0;
    device.nvml_bytes.reset();
  }
  query::ReportQuery query;
  query.where = {{query::Dimension::kDevice, "gpu7"}, {query::Dimension::kOwner, "torch"}};
  const std::string text = FormatText(report, recording, query, Options(true));
  EXPECT_THAT(text,
              HasSubstr("No memory has device=gpu7 and owner=torch then: `--by device,owner` lists "
                        "the values.\n"));
  EXPECT_THAT(text, Not(HasSubstr("Top lines")));
}

TEST(WritersTest, TextFitsOneScreen) {
  for (const bool troubled : {false, true}) {
    FakeRecording recording;
    const query::Report report = troubled ? TroubledReport(recording) : TrainingReport(recording);
    for (const int columns : {72, 80, 132}) {
      TextOptions options = Options(true);
      options.style.columns = columns;
      const std::vector<std::string> lines = SplitLines(FormatText(report, recording, {}, options));
      EXPECT_LE(lines.size(), options.rows);
      for (const std::string& line : lines) {
        EXPECT_LE(util::DisplayWidth(line), static_cast<size_t>(columns)) << line;
      }
    }
  }
}

TEST(WritersTest, ColoursAddNothingElse) {
  FakeRecording recording;
  const query::Report report = TrainingReport(recording);
  TextOptions options = Options(true);
  const std::string plain = FormatText(report, recording, {}, options);
  options.style.colour = true;
  const std::string painted = FormatText(report, recording, {}, options);
  EXPECT_NE(plain, painted);
  std::string stripped;
  for (size_t i = 0; i < painted.size(); ++i) {
    if (painted[i] == '\x1b') {
      i = painted.find('m', i);
      continue;
    }
    stripped += painted[i];
  }
  // Padding at the end of a painted field stays.
  const std::vector<std::string> expected = SplitLines(plain);
  std::vector<std::string> lines = SplitLines(stripped);
  ASSERT_EQ(lines.size(), expected.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    lines[i].erase(lines[i].find_last_not_of(' ') + 1);
    EXPECT_EQ(lines[i], expected[i]);
  }
}

TEST(WritersTest, GroupedTextShowsOnlyGroups) {
  FakeRecording recording;
  query::Report report = TrainingReport(recording);
  report.rows = {{tables::DeviceId{1}, 4711, {"h.0.attn", "model.py:112"}, 6000, 3},
                 {tables::DeviceId{1}, 4711, {"h.0.attn", "model.py:113"}, 3000, 2},
                 {tables::DeviceId{1}, 4711, {"h.1.mlp", "model.py:120"}, 1000, 1},
                 {tables::DeviceId{1}, 4711, {"(rest)", "(rest)"}, 10, 1}};
  report.devices.resize(1);
  query::ReportQuery query;
  query.by = {query::Dimension::kModule, query::Dimension::kLine};
  const std::string text = FormatText(report, recording, query, Options(true));
  EXPECT_EQ(text, Expected("grouped.txt", text));
}

TEST(WritersTest, WithoutPurposesTheLedgerSaysMore) {
  FakeRecording recording;
  query::Report report = TrainingReport(recording);
  report.categories = {{tables::DeviceId{1}, "unknown", 13'000ull << 20, 9},
                       {tables::DeviceId{1}, "driver", 643ull << 20, 3}};
  report.layers.clear();
  const std::string text = FormatText(report, recording, {}, Options(true));
  EXPECT_EQ(text.find("\n  category "), std::string::npos);
  EXPECT_NE(text.find("\n  ledger  "), std::string::npos);
  EXPECT_NE(text.find("\n    cached "), std::string::npos);
}

TEST(WritersTest, ParametersOfRepeatedLayersAreOneLine) {
  FakeRecording recording;
  query::Report report = TrainingReport(recording);
  report.rows.clear();
  for (const std::string layer : {"0", "1", "2", "10"})
    report.rows.push_back(
        {tables::DeviceId{1}, 4711, {"blocks." + layer + ".attn.weight"}, 6 << 20, 3});
  report.rows.push_back({tables::DeviceId{1}, 4711, {"blocks.3.attn.weight"}, 9 << 20, 1});
  report.devices.resize(1);
  query::ReportQuery query;
  query.by = {query::Dimension::kParameter};
  const std::string text = FormatText(report, recording, query, Options(true));
  EXPECT_THAT(text, HasSubstr("\n  blocks.[0-2,10].attn.weight x4 "));
  EXPECT_THAT(text, HasSubstr(" 24.0 "));
  EXPECT_THAT(text, HasSubstr("\n  blocks.3.attn.weight "));
  EXPECT_THAT(text, Not(HasSubstr("blocks.10.")));
}

TEST(WritersTest, ModulesFoldAtTheirDots) {
  FakeRecording recording;
  query::Report report = TrainingReport(recording);
  report.rows = {{tables::DeviceId{1}, 4711, {"gpt.h.0.attn", "activation"}, 6000, 3},
                 {tables::DeviceId{1}, 4711, {"gpt.h.0.mlp", "activation"}, 3000, 2},
                 {tables::DeviceId{1}, 4711, {"gpt.h.1.mlp", "parameter"}, 1000, 1},
                 {tables::DeviceId{1}, 4711, {"(none)", "driver"}, 10, 1}};
  report.devices.resize(1);
  query::ReportQuery query;
  query.by = {query::Dimension::kModule, query::Dimension::kCategory};
  const std::string text = FormatText(report, recording, query, Options(true));
  EXPECT_EQ(text, Expected("by_module.txt", text));
}

TEST(WritersTest, ADeviceOnWhichNothingHappened) {
  FakeRecording recording;
  query::Report report;
  report.devices.resize(1);
  report.devices[0].at_kind = "iteration";
  query::ReportQuery query;
  query.at.kind = query::Instant::Kind::kIteration;
  EXPECT_THAT(FormatText(report, recording, query, Options(true)),
              HasSubstr(" nothing allocated\n"));
}

TEST(WritersTest, CrumbsAreNotListed) {
  FakeRecording recording;
  query::Report report = TrainingReport(recording);
  report.top_lines.push_back({tables::DeviceId{1}, "crumb.py:1 in f", "", 100, 1});
  report.layers.resize(2);
  report.layers.push_back({tables::DeviceId{1}, "crumb", "", 100, 1, {}});
  const std::string text = FormatText(report, recording, {}, Options(true));
  EXPECT_EQ(text.find("crumb"), std::string::npos);
  EXPECT_NE(text.find("transformer.h.1.attn"), std::string::npos);
  EXPECT_NE(text.find("train.py:31"), std::string::npos);
}

TEST(WritersTest, EmptyText) {
  FakeRecording recording;
  const std::string text = FormatText({}, recording, {}, Options(true));
  EXPECT_EQ(text, Expected("empty.txt", text));
}

TEST(WritersTest, OptionsSayWhatWasLookedFor) {
  FakeRecording recording;
  recording.edit().notes.push_back(
      {recording.Intern(tables::kOptionsNote), recording.Intern("cpu,overflow")});
  const std::string text = FormatText({}, recording, {}, Options(true));
  EXPECT_THAT(text, HasSubstr("no GPU memory and no CPU tensor was allocated.\n"
                              "--overflow did nothing.\n"));
}

TEST(WritersTest, LittlePinnedMemoryIsALine) {
  FakeRecording recording;
  query::Report report = TrainingReport(recording);
  const std::string section = "Host memory, pinned and registered   ";
  EXPECT_THAT(FormatText(report, recording, {}, Options(true)), HasSubstr(section));
  report.devices[1].ledger_bytes = 4;
  const std::string text = FormatText(report, recording, {}, Options(true));
  EXPECT_THAT(text, HasSubstr("Host memory, pinned and registered: 4 B (`--top 0` has its"));
  EXPECT_EQ(text.find(section), std::string::npos);
}

TEST(WritersTest, Json) {
  FakeRecording recording;
  const std::string training = ReportJson(TrainingReport(recording), recording);
  EXPECT_EQ(training, Expected("training.json", training));
  const std::string troubled = ReportJson(TroubledReport(recording), recording);
  EXPECT_EQ(troubled, Expected("troubled.json", troubled));
  const std::string empty = ReportJson({}, recording);
  EXPECT_EQ(empty, Expected("empty.json", empty));
}

TEST(WritersTest, SeveralReportsAreAnArray) {
  FakeRecording recording;
  const query::Report report = TrainingReport(recording);
  const std::string one = ReportJson(report, recording);
  EXPECT_EQ(JsonOfFiles({one}), one);
  const std::string several = JsonOfFiles({one, one});
  EXPECT_TRUE(several.starts_with("[\n{\n"));
  EXPECT_THAT(several, HasSubstr("\n},\n{\n"));
  EXPECT_TRUE(several.ends_with("\n}\n]\n"));
}

TEST(WritersTest, InstantsInTheHeadline) {
  FakeRecording recording;
  query::Report report = TrainingReport(recording);
  report.devices.resize(1);
  report.devices[0].at_iteration.reset();
  query::ReportQuery query;
  query.at.kind = query::Instant::Kind::kMark;
  query.at.mark = "epoch\n2";
  report.devices[0].at_kind = "mark";
  EXPECT_NE(FormatText(report, recording, query, Options(true))
                .find(" mark epoch?2 14,521.8 MiB at 4.213 s\n"),
            std::string::npos);
  query.at.kind = query::Instant::Kind::kSeconds;
  report.devices[0].at_kind = "time";
  EXPECT_NE(FormatText(report, recording, query, Options(true)).find("  14,521.8 MiB at 4.213 s\n"),
            std::string::npos);
}

TEST(WritersTest, TheResidualsTarget) {
  EXPECT_TRUE(IsWithinTarget(4 << 20, 1 << 20));
  EXPECT_FALSE(IsWithinTarget(-(4 << 20) - 1, 1 << 20));
  EXPECT_TRUE(IsWithinTarget(-(100ll << 20), 100'000ull << 20));
  EXPECT_FALSE(IsWithinTarget((100ll << 20) + 1, 100'000ull << 20));
}

TEST(WritersTest, Csv) {
  FakeRecording recording;
  const std::string training = ReportCsv({{"a.vram", TrainingReport(recording)}}, {});
  EXPECT_EQ(training, Expected("training.csv", training));
  const std::string several =
      ReportCsv({{"a, b.vram", TrainingReport(recording)}, {"c.vram", TroubledReport(recording)}},
                {}, {.file = true});
  EXPECT_EQ(several, Expected("several.csv", several));
}

TEST(WritersTest, CsvByDimension) {
  FakeRecording recording;
  query::Report report = TrainingReport(recording);
  report.rows = {{tables::DeviceId{1}, 4711, {"gpu0", "h.0, \"attn\""}, 6000, 3}};
  EXPECT_EQ(ReportCsv({{"a.vram", report}}, {query::Dimension::kDevice, query::Dimension::kModule}),
            "device,index,pid,module,bytes,count\r\n"
            "gpu0,0,4711,\"h.0, \"\"attn\"\"\",6000,3\r\n");
  report.devices[0].at_ns = 77;
  EXPECT_EQ(ReportCsv({{"a.vram", report}}, {query::Dimension::kModule}, {.at_ns = true}),
            "at_ns,device,index,pid,module,bytes,count\r\n"
            "77,gpu0,0,4711,gpu0,6000,3\r\n");
}

}  // namespace
}  // namespace vramscope::output
