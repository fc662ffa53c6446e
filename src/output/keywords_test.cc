// SPDX-License-Identifier: Apache-2.0
#include "output/keywords.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/units.h"
#include "output/report_fixture.h"

namespace vramscope::output {
namespace {

using query::KeywordCategory;
using query::KeywordEntry;
using testing::HasSubstr;
using testing::Not;

KeywordCategory Category(const std::string& name, std::vector<KeywordEntry> entries) {
  KeywordCategory category{.name = name, .entries = std::move(entries)};
  for (const KeywordEntry& entry : category.entries) {
    category.bytes += entry.bytes;
    category.rows += entry.rows;
    category.count += entry.count;
  }
  return category;
}

// A network's layers on a GPU with more memory in use than recorded, and a second dictionary whose
// expected bytes are below its rows.
query::KeywordReport LayersReport(FakeRecording& recording) {
  query::KeywordReport out;
  out.report = TrainingReport(recording);
  out.report.rows.clear();
  out.report.residuals.clear();
  out.report.block_bytes = 0;
  out.report.devices.resize(1);
  out.dictionaries.push_back(
      {"layers",
       "Layer",
       {{"Attention", "", {"attn"}, {query::Dimension::kModule, query::Dimension::kParameter}}}});
  out.dictionaries.push_back(
      {"tbd", "TBD category", {{"Weights", "", {"in_arg"}, {query::Dimension::kTag}}}});
  query::KeywordTable layers;
  layers.device = tables::DeviceId{1};
  layers.categories = {
      Category("MLP", {{"module", "transformer.h.0.mlp", 3000 * kMiB, 2, 24},
                       {"module", "transformer.h.1.mlp", 2500 * kMiB, 2, 24}}),
      Category(
          "Attention",
          {{"module", "transformer.a_very_long_name_of_a_module_that_no_terminal_has_room_for.attn",
            96 * kMiB, 1, 3},
           {"", query::kRest, 4 * kMiB, 7, 9}}),
      {.name = "Pooling"},
      {.name = "Dropout"}};
  layers.others = Category(query::kOthers, {{"", "(no name)", 400 * kMiB, 3, 5}});
  layers.row_bytes = 6000 * kMiB;
  layers.expected_bytes = 6200 * kMiB;
  layers.untrackable_bytes = 200 * static_cast<int64_t>(kMiB);
  layers.overlaps = {{{"transformer.h.0.mlp", "h.0.attn_mlp"}, {"MLP", "Attention"}, 40 * kMiB, 2}};
  layers.overlap_rows = 1;
  layers.overlap_bytes = 40 * kMiB;
  query::KeywordTable tbd;
  tbd.device = layers.device;
  tbd.dictionary = 1;
  tbd.categories = {Category("Weights", {{"tag", "in_arg:a,b", 5500 * kMiB, 1, 1}})};
  tbd.categories[0].group = "Total Weights";
  tbd.groups = {{"Total Weights", 5500 * kMiB, 1, 1}};
  tbd.others = Category(query::kOthers, {{"tag", "grad of data", 500 * kMiB, 1, 1}});
  tbd.row_bytes = 6000 * kMiB;
  tbd.expected_bytes = 5000 * kMiB;
  tbd.expected_is_given = true;
  tbd.untrackable_bytes = -1000 * static_cast<int64_t>(kMiB);
  out.tables = {layers, tbd};
  out.unnamed = {{layers.device,
                  "solver.cc:12 in Grow",
                  {"cudaMalloc", "solver.cc:12 in Grow", "main"},
                  2 * kMiB,
                  4},
                 {layers.device, "", {}, kMiB, 1}};
  return out;
}

TEST(KeywordsText, Layers) {
  FakeRecording recording;
  const query::KeywordReport report = LayersReport(recording);
  KeywordsTextOptions options;
  options.style.utf8 = true;
  options.closing = {"Trace: train.vram"};
  const std::string text = KeywordsText(report, recording, options);
  EXPECT_EQ(text, Expected("keywords.txt", text));
}

TEST(KeywordsText, OnlyNamesMayBeWiderThanTheTerminal) {
  FakeRecording recording;
  const query::KeywordReport report = LayersReport(recording);
  const std::string text = KeywordsText(report, recording, {});
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    EXPECT_TRUE(line.size() <= 80 || line.ends_with("_room_for.attn")) << line;
    begin = end + 1;
  }
}

TEST(KeywordsText, OnATerminalNamesGoOnBelow) {
  FakeRecording recording;
  query::KeywordReport report = LayersReport(recording);
  ASSERT_FALSE(report.tables[0].overlaps.empty());
  report.tables[0].overlaps[0].names = {"transformer.h.0.attention.projection",
                                        "residual_of_the_stream", "a;train.py:42 in step"};
  const std::string line =
      "transformer.h.0.attention.projection / residual_of_the_stream / "
      "train.py:42 in step";
  EXPECT_THAT(KeywordsText(report, recording, {}), HasSubstr(line));
  KeywordsTextOptions options;
  options.style.wraps = true;
  const std::string text = KeywordsText(report, recording, options);
  EXPECT_THAT(text, HasSubstr(" transformer.h.0.attention.projection /\n" + std::string(23, ' ') +
                              "residual_of_the_stream / train.py:42 in step\n"));
}

TEST(KeywordsText, WithoutAnExpectedSumThereIsNoUntrackable) {
  FakeRecording recording;
  query::KeywordReport report = LayersReport(recording);
  report.tables.resize(1);
  report.tables[0].expected_bytes.reset();
  report.tables[0].untrackable_bytes.reset();
  const std::string text = KeywordsText(report, recording, {});
  EXPECT_THAT(text, Not(HasSubstr("Untrackable")));
  EXPECT_THAT(text, HasSubstr("All rows"));
}

TEST(KeywordsJson, Layers) {
  FakeRecording recording;
  const std::string text = KeywordsJson(LayersReport(recording));
  EXPECT_EQ(text, Expected("keywords.json", text));
}

TEST(KeywordsCsv, SumsToWhatWasExpected) {
  FakeRecording recording;
  const query::KeywordReport report = LayersReport(recording);
  const std::string one = KeywordsCsv(report);
  EXPECT_EQ(one, Expected("keywords.csv", one));
}

// The same network with half of the memory and without an expected sum.
query::KeywordReport SmallerReport(FakeRecording& recording) {
  query::KeywordReport report = LayersReport(recording);
  for (query::KeywordTable& table : report.tables) {
    table.row_bytes /= 2;
    table.expected_bytes.reset();
    table.untrackable_bytes.reset();
    table.others.bytes /= 2;
    for (KeywordCategory& category : table.categories)
      category.bytes /= 2;
    for (query::KeywordGroup& group : table.groups)
      group.bytes /= 2;
  }
  return report;
}

TEST(KeywordSheet, FilesStandSideBySide) {
  FakeRecording recording;
  const std::vector<NamedKeywords> reports = {{"runs/large.vram", LayersReport(recording)},
                                              {"runs/small.vram", SmallerReport(recording)}};
  const KeywordSheet sheet = MakeKeywordSheet(reports);
  ASSERT_EQ(sheet.columns.size(), 2u);
  ASSERT_EQ(sheet.tables.size(), 2u);
  for (const SheetTable& table : sheet.tables) {
    uint64_t bytes = table.others.all.bytes;
    for (const SheetLine& line : table.categories)
      bytes += line.all.bytes;
    EXPECT_EQ(bytes, table.row_bytes);
    EXPECT_EQ(static_cast<int64_t>(bytes) + *table.untrackable_bytes,
              static_cast<int64_t>(*table.expected_bytes));
  }
  Style style;
  style.utf8 = true;
  const std::string text = KeywordSheetText(reports, 0, style);
  EXPECT_EQ(text, Expected("keyword_sheet.txt", text));
  const std::string csv = KeywordSheetCsv(reports);
  EXPECT_EQ(csv, Expected("keyword_sheet.csv", csv));
}

TEST(KeywordSheet, ManyFilesTakeSeveralBlocksOf80Columns) {
  FakeRecording recording;
  std::vector<NamedKeywords> reports;
  for (int i = 0; i < 7; ++i)
    reports.push_back(
        {"a/" + std::string(60, 'x') + std::to_string(i) + ".vram", SmallerReport(recording)});
  const std::string text = KeywordSheetText(reports, 1, {});
  EXPECT_THAT(text, HasSubstr("7 recordings side by side"));
  EXPECT_THAT(text, HasSubstr(" Sum of columns\n"));
  EXPECT_THAT(text, Not(HasSubstr("Untrackable")));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    EXPECT_TRUE(line.size() <= 80 || line.ends_with("  in all")) << line;  // names are never cut
    begin = end + 1;
  }
}

TEST(KeywordSheet, FilesOfOneNameAreCalledByTheirPath) {
  FakeRecording recording;
  const std::vector<NamedKeywords> reports = {{"a/x.vram", SmallerReport(recording)},
                                              {"b/x.vram", SmallerReport(recording)},
                                              {"b/=y,z.vram", SmallerReport(recording)}};
  EXPECT_THAT(
      KeywordSheetCsv(reports),
      testing::StartsWith("dictionary,category,group,a/x.vram,b/x.vram,\"'=y,z.vram\",all\r\n"));
}

}  // namespace
}  // namespace vramscope::output
