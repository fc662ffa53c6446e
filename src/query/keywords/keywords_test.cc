// SPDX-License-Identifier: Apache-2.0
#include "query/keywords/keywords.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "query/testing/random_recording.h"

namespace vramscope::query {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct LivePiece {
  std::map<Dimension, std::string> names;
  uint64_t bytes = 0;
  uint64_t count = 1;
  int32_t device = 0;
};

constexpr int64_t kInstantNs = 100;

// A recording in which these pieces are live at one instant, each of a site of its own.
class LivePieces {
 public:
  explicit LivePieces(const std::vector<LivePiece>& pieces) {
    const tables::ProcessId process = builder_.Process(1, kInstantNs);
    int32_t last = 0;
    for (const LivePiece& piece : pieces)
      last = std::max(last, piece.device);
    for (int32_t i = 0; i <= last; ++i)
      accounts_.push_back(builder_.Account(process, builder_.Device(tables::DeviceKind::kGpu, i)));
    for (const LivePiece& piece : pieces)
      Add(piece);
  }

  tables::DeviceRow& device(size_t number) { return builder_.tables.devices[number + 1]; }
  void SetNvml(uint64_t used_bytes) {
    tables::SampleRow sample;
    sample.device = tables::DeviceId{1};
    sample.time_ns = sample.begin_ns = sample.end_ns = kInstantNs;
    sample.used_bytes = used_bytes;
    sample.counted = 1;
    builder_.tables.samples.push_back(sample);
  }
  util::Result<KeywordReport> Ask(const KeywordQuery& query) {
    return MakeKeywordReport(*builder_.Make(), query);
  }

 private:
  void Add(const LivePiece& piece) {
    tables::SiteRow site = builder_.SiteOf(accounts_[static_cast<size_t>(piece.device)],
                                           format::Part::kAllocated, format::Category::kUnknown);
    for (const auto& [dimension, name] : piece.names) {
      switch (dimension) {
        case Dimension::kTag:
          site.tag = builder_.Text(name);
          break;
        case Dimension::kModule:
          site.module = builder_.Text(name);
          break;
        case Dimension::kParameter:
          site.parameter = builder_.Text(name);
          break;
        case Dimension::kCategory:
          for (const format::Category category : format::kAllCategories) {
            if (name == format::CategoryName(category))
              site.category = category;
          }
          break;
        case Dimension::kPython:
          site.stack = Stack(name);
          break;
        case Dimension::kLine:
          site.place = Stack(name);
          break;
        case Dimension::kNative:
          site.native_stack = Stack(name);
          break;
        default:
          ADD_FAILURE() << DimensionName(dimension);
      }
    }
    const tables::SiteId id = builder_.Site(site);
    for (uint64_t i = 0; i < piece.count; ++i)
      builder_.Row(id, 0, tables::kNever, i == 0 ? piece.bytes : 0);
  }
  // "outer;inner": functions.
  tables::StackId Stack(const std::string& functions) {
    tables::StackId stack;
    std::istringstream text(functions);
    for (std::string function; std::getline(text, function, ';');) {
      tables::FrameRow frame;
      frame.function = builder_.Text(function);
      const tables::FrameId id{builder_.Append(builder_.tables.frames, frame)};
      stack = tables::StackId{builder_.Append(builder_.tables.stacks, tables::StackRow{stack, id})};
    }
    return stack;
  }

  RecordingBuilder builder_;
  std::vector<tables::AccountId> accounts_;
};

LivePiece Tagged(const std::string& tag, uint64_t bytes) {
  return {.names = {{Dimension::kTag, tag}}, .bytes = bytes};
}

KeywordRule Rule(const std::string& category,
                 std::vector<std::string> keywords,
                 KeywordMatch match = KeywordMatch::kSubstring) {
  return {.category = category,
          .group = "",
          .keywords = std::move(keywords),
          .over = {Dimension::kTag},
          .match = match};
}

KeywordQuery Query(std::vector<KeywordRule> rules) {
  KeywordQuery query;
  query.at.kind = Instant::Kind::kMonotonic;
  query.at.time_ns = kInstantNs;
  query.dictionaries.push_back({"test", "Test", std::move(rules)});
  return query;
}

KeywordTable TableOf(const std::vector<LivePiece>& pieces, const KeywordQuery& query) {
  util::Result<KeywordReport> report = LivePieces(pieces).Ask(query);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report->tables.at(0);
}

uint64_t BytesOf(const KeywordTable& table, const std::string& name) {
  if (name == kOthers)
    return table.others.bytes;
  for (const KeywordCategory& category : table.categories) {
    if (category.name == name)
      return category.bytes;
  }
  ADD_FAILURE() << "no category " << name;
  return 0;
}

std::vector<std::string> NamesOf(const std::vector<KeywordEntry>& entries) {
  std::vector<std::string> names;
  for (const KeywordEntry& entry : entries)
    names.push_back(entry.name);
  return names;
}

// The rows of MXNet's GPU memory profiler and its two dictionaries. Its own analyzer adds a row
// once for every keyword that matches: 3.125 GiB of parameters, more than there are.
std::vector<LivePiece> MxnetRows() {
  return {
      Tagged("in_arg:encoder_rnn_i2h_weight", 512 * kMiB),
      Tagged("arg_grad:encoder_rnn_i2h_weight", 512 * kMiB),
      Tagged("in_arg:embed_weight", 1024 * kMiB),
      Tagged("optimizer_state:mean:embed_weight", 1024 * kMiB),
      Tagged("data_entry:decoder_rnn_l0_t3_i2h_oedge0", 2048 * kMiB),
      Tagged("head_grad:data_entry:softmax_oedge0", 256 * kMiB),
      Tagged("workspace:dot-inl.h+362:dot-inl.h+400:DotForwardEx", 128 * kMiB),
      Tagged("unknown:_zeros", 5 * kMiB),
      Tagged("optimizer_state:in_arg_weird", 64 * kMiB),
  };
}

TEST(Keywords, EveryByteIsCountedOnce) {
  KeywordQuery query =
      Query({Rule("Parameters", {"in_arg", "arg_grad", "optimizer_state"}),
             Rule("Data Entries", {"data_entry"}), Rule("Workspace", {"workspace"})});
  query.dictionaries.push_back(
      {"layers", "Layer", {Rule("RNN", {"rnn"}), Rule("Embed", {"embed"})}});
  query.expected.push_back({"", 6144 * kMiB});
  LivePieces pieces(MxnetRows());
  const util::Result<KeywordReport> report = pieces.Ask(query);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->tables.size(), 2u);
  const KeywordTable& data = report->tables[0];
  EXPECT_EQ(BytesOf(data, "Parameters"), 3136 * kMiB);
  EXPECT_EQ(BytesOf(data, "Data Entries"), 2304 * kMiB);
  EXPECT_EQ(BytesOf(data, "Workspace"), 128 * kMiB);
  EXPECT_EQ(data.others.bytes, 5 * kMiB);
  EXPECT_EQ(data.untrackable_bytes, 571 * static_cast<int64_t>(kMiB));
  const KeywordTable& layers = report->tables[1];
  EXPECT_EQ(BytesOf(layers, "RNN"), 3072 * kMiB);
  EXPECT_EQ(BytesOf(layers, "Embed"), 2048 * kMiB);
  EXPECT_EQ(layers.others.bytes, 453 * kMiB);
  EXPECT_THAT(layers.overlaps, IsEmpty());
  for (const KeywordTable& table : report->tables) {
    uint64_t sum = table.others.bytes;
    for (const KeywordCategory& category : table.categories)
      sum += category.bytes;
    EXPECT_EQ(sum, table.row_bytes);
    EXPECT_EQ(static_cast<int64_t>(sum) + *table.untrackable_bytes,
              static_cast<int64_t>(*table.expected_bytes));
  }
}

TEST(Keywords, TheFirstCategoryWinsAndOverlapsAreListed) {
  const KeywordTable table =
      TableOf(MxnetRows(),
              Query({Rule("Optimizer", {"optimizer"}), Rule("Weights", {"in_arg", "weight"})}));
  EXPECT_EQ(BytesOf(table, "Optimizer"), 1088 * kMiB);
  EXPECT_EQ(BytesOf(table, "Weights"), 2048 * kMiB);
  ASSERT_EQ(table.overlaps.size(), 2u);
  EXPECT_THAT(table.overlaps[0].names, ElementsAre("optimizer_state:mean:embed_weight"));
  EXPECT_THAT(table.overlaps[0].categories, ElementsAre("Optimizer", "Weights"));
  EXPECT_THAT(table.overlaps[1].names, ElementsAre("optimizer_state:in_arg_weird"));
  EXPECT_EQ(table.overlap_rows, 2u);
  EXPECT_EQ(table.overlap_bytes, 1088 * kMiB);
}

TEST(Keywords, SeveralKeywordsOfOneCategoryAreNoOverlap) {
  const KeywordTable table = TableOf(
      {Tagged("drop_out", 8)}, Query({Rule("Drop", {"drop", "out"}), Rule("Drop", {"drop_"})}));
  EXPECT_EQ(BytesOf(table, "Drop"), 8u);
  EXPECT_EQ(table.categories.size(), 1u);
  EXPECT_THAT(table.overlaps, IsEmpty());
}

TEST(Keywords, ATagKeepsWhatStandsBehindASpace) {
  const KeywordTable table =
      TableOf({Tagged("grad of data", 64), Tagged("RNN", 64)}, Query({Rule("Data", {"of data"})}));
  ASSERT_EQ(table.categories[0].entries.size(), 1u);
  EXPECT_EQ(table.categories[0].entries[0].name, "grad of data");
  EXPECT_THAT(NamesOf(table.others.entries), ElementsAre("RNN"));
}

TEST(Keywords, AnExpectedSumBelowTheRowsIsNegative) {
  KeywordQuery query = Query({Rule("All", {"a"})});
  query.expected.push_back({"gpu0", 60});
  const KeywordTable table = TableOf({Tagged("a", 100), Tagged("b", 7)}, query);
  EXPECT_EQ(table.untrackable_bytes, -47);
  EXPECT_TRUE(table.expected_is_given);
  EXPECT_EQ(table.others.bytes, 7u);
}

TEST(Keywords, NvmlIsTheExpectedSumUnlessOneIsGiven) {
  LivePieces pieces({Tagged("a", 100)});
  KeywordQuery query = Query({Rule("All", {"a"})});
  EXPECT_FALSE(pieces.Ask(query)->tables[0].untrackable_bytes);
  pieces.SetNvml(130);
  EXPECT_EQ(pieces.Ask(query)->tables[0].untrackable_bytes, 30);
  query.expected.push_back({"", 100});
  EXPECT_EQ(pieces.Ask(query)->tables[0].untrackable_bytes, 0);
}

TEST(Keywords, WithSeveralDevicesTheExpectedSumNeedsAName) {
  LivePiece second = Tagged("a", 5);
  second.device = 1;
  LivePieces pieces({Tagged("a", 100), second});
  KeywordQuery query = Query({Rule("All", {"a"})});
  query.expected.push_back({"", 100});
  EXPECT_THAT(pieces.Ask(query).status().message(), HasSubstr("several devices (gpu0, gpu1)"));
  query.expected[0].device = "gpu7";
  EXPECT_THAT(pieces.Ask(query).status().message(), HasSubstr("no device 'gpu7'"));
  query.expected[0].device = "gpu1";
  const util::Result<KeywordReport> report = pieces.Ask(query);
  ASSERT_TRUE(report.ok());
  EXPECT_FALSE(report->tables[0].untrackable_bytes);
  EXPECT_EQ(report->tables[1].untrackable_bytes, 95);
  pieces.device(1).kind = tables::DeviceKind::kHost;
  pieces.device(1).index = -2;
  query.expected[0].device = "";
  EXPECT_EQ(pieces.Ask(query)->tables[0].untrackable_bytes, 0) << "the only GPU";
}

TEST(Keywords, CaseCountsOnlyWhereAskedFor) {
  KeywordRule exact_case = Rule("Lower", {"rnn"});
  exact_case.case_sensitive = true;
  const KeywordTable table = TableOf({Tagged("RNN", 1), Tagged("rnn", 2), Tagged("Conv", 4)},
                                     Query({exact_case, Rule("Any", {"RnN", "cONV"})}));
  EXPECT_EQ(BytesOf(table, "Lower"), 2u);
  EXPECT_EQ(BytesOf(table, "Any"), 5u);
}

TEST(Keywords, Matches) {
  const std::vector<LivePiece> rows = {Tagged("h.0.attn", 1), Tagged("h.10.attn", 2),
                                       Tagged("attn", 4), Tagged("h.0.attn.bias", 8),
                                       Tagged("blocks[3]", 16)};
  const auto bytes = [&](KeywordMatch match, const std::string& keyword) {
    return BytesOf(TableOf(rows, Query({Rule("It", {keyword}, match)})), "It");
  };
  EXPECT_EQ(bytes(KeywordMatch::kSubstring, "attn"), 15u);
  EXPECT_EQ(bytes(KeywordMatch::kExact, "attn"), 4u);
  EXPECT_EQ(bytes(KeywordMatch::kPrefix, "h.0"), 9u);
  EXPECT_EQ(bytes(KeywordMatch::kGlob, "h.*.attn"), 3u);
  EXPECT_EQ(bytes(KeywordMatch::kGlob, "h.?.attn"), 1u);
  EXPECT_EQ(bytes(KeywordMatch::kGlob, "*[3]"), 16u);
  EXPECT_EQ(bytes(KeywordMatch::kGlob, "*"), 31u);
  EXPECT_EQ(bytes(KeywordMatch::kGlob, "h.*.attn**"), 11u);
  EXPECT_EQ(bytes(KeywordMatch::kGlob, "*a*a*a*a*a*a*a*a*b"), 0u);
}

TEST(Keywords, EntriesAreNamedByTheNameThatMatched) {
  KeywordQuery query = Query({});
  KeywordRule attention = Rule("Attention", {"attn"});
  attention.over = {Dimension::kModule, Dimension::kParameter};
  KeywordRule gradients = Rule("Gradients", {"gradient"}, KeywordMatch::kExact);
  gradients.over = {Dimension::kCategory};
  query.dictionaries[0].rules = {attention, gradients};
  const KeywordTable table = TableOf(
      {{.names = {{Dimension::kModule, "h.0.attn"}, {Dimension::kParameter, "h.0.attn.w"}},
        .bytes = 8},
       {.names = {{Dimension::kParameter, "h.1.attn.w"}}, .bytes = 4, .count = 3},
       {.names = {{Dimension::kModule, "gradient"}, {Dimension::kCategory, "activation"}},
        .bytes = 2},
       {.names = {{Dimension::kModule, "mlp"}, {Dimension::kCategory, "gradient"}}, .bytes = 1}},
      query);
  ASSERT_EQ(table.categories[0].name, "Attention");
  EXPECT_THAT(NamesOf(table.categories[0].entries), ElementsAre("h.0.attn", "h.1.attn.w"));
  EXPECT_EQ(table.categories[0].entries[0].dimension, "module");
  EXPECT_EQ(table.categories[0].entries[1].dimension, "parameter");
  EXPECT_EQ(table.categories[0].rows, 2u);
  EXPECT_EQ(table.categories[0].count, 4u);
  EXPECT_THAT(NamesOf(table.categories[1].entries), ElementsAre("gradient"));
  EXPECT_THAT(NamesOf(table.others.entries), ElementsAre("gradient")) << "a module is no category";
  EXPECT_EQ(table.others.entries[0].dimension, "module");
}

TEST(Keywords, WhatARowDoesNotHaveMatchesNothing) {
  const KeywordTable table = TableOf(
      {{.bytes = 9}}, Query({Rule("None", {"none"}), Rule("All", {"*"}, KeywordMatch::kGlob)}));
  EXPECT_EQ(table.others.bytes, 9u);
  ASSERT_THAT(NamesOf(table.others.entries), ElementsAre("(no name)"));
  EXPECT_EQ(table.others.entries[0].dimension, "");
}

TEST(Keywords, TagThatReadsNone_Keyword_IsMatched) {
  const KeywordTable table =
      TableOf({Tagged("(none)", 7), {.bytes = 9}}, Query({Rule("None", {"none"})}));
  EXPECT_THAT(NamesOf(table.categories[0].entries), ElementsAre("(none)"));
  EXPECT_EQ(table.categories[0].bytes, 7u);
  EXPECT_EQ(table.others.bytes, 9u);
}

TEST(Keywords, TopCutsNothingOutOfTheSums) {
  KeywordQuery query = Query({Rule("A", {"a"}), Rule("B", {"b"})});
  query.top = 1;
  const KeywordTable table = TableOf(
      {Tagged("a1", 5), Tagged("a2", 7), Tagged("ab1", 3), Tagged("ab2", 2), Tagged("x", 1)},
      query);
  EXPECT_EQ(BytesOf(table, "A"), 17u);
  EXPECT_THAT(NamesOf(table.categories[0].entries), ElementsAre("a2", kRest));
  EXPECT_EQ(table.categories[0].entries[1].bytes, 10u);
  ASSERT_EQ(table.overlaps.size(), 2u);
  EXPECT_EQ(table.overlaps[1].bytes, 2u);
  EXPECT_EQ(table.overlap_bytes, 5u);
}

TEST(Keywords, GroupsSumTheirCategories) {
  KeywordRule weights = Rule("Weights", {"w"});
  weights.group = "Total Weights";
  KeywordRule gradients = Rule("Gradients", {"g"});
  gradients.group = "Total Weights";
  KeywordRule rest = Rule("Rest", {"r"});
  rest.group = "Total Rest";
  const KeywordTable table = TableOf({Tagged("w", 5), Tagged("g", 7), Tagged("r", 100)},
                                     Query({weights, gradients, rest}));
  ASSERT_EQ(table.groups.size(), 2u);
  EXPECT_EQ(table.groups[0].name, "Total Weights");
  EXPECT_EQ(table.groups[0].bytes, 12u);
  EXPECT_EQ(table.groups[0].rows, 2u);
  EXPECT_EQ(table.groups[1].bytes, 100u);
}

TEST(Keywords, WhatHasNoNameIsListedByItsStack) {
  LivePieces pieces(
      {{.names = {{Dimension::kPython, "main;step;zeros"}, {Dimension::kCategory, "unknown"}},
        .bytes = 6},
       {.names = {{Dimension::kNative, "_start;cudaMalloc"}, {Dimension::kCategory, "unknown"}},
        .bytes = 20,
        .count = 2},
       {.names = {{Dimension::kPython, "main"}, {Dimension::kCategory, "activation"}}, .bytes = 50},
       {.names = {{Dimension::kPython, "main"}, {Dimension::kTag, "mine"}}, .bytes = 50},
       {.names = {{Dimension::kCategory, "unknown"}}, .bytes = 1}});
  const util::Result<KeywordReport> report = pieces.Ask(Query({Rule("A", {"a"})}));
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->unnamed.size(), 3u);
  EXPECT_EQ(report->unnamed[0].bytes, 20u);
  EXPECT_EQ(report->unnamed[0].count, 2u);
  EXPECT_THAT(report->unnamed[0].frames, ElementsAre("cudaMalloc", "_start"));
  EXPECT_THAT(report->unnamed[1].frames, ElementsAre("zeros", "step", "main"));
  EXPECT_THAT(report->unnamed[2].frames, IsEmpty());
}

// As in a snapshot's backward: native frames only, the innermost ones of allocators.
TEST(Keywords, WhatHasNoNameIsCalledByItsLine) {
  const std::string native = "thread;MulBackward0::apply;mul;malloc";
  LivePieces pieces(
      {{.names = {{Dimension::kNative, native}, {Dimension::kLine, "MulBackward0 (backward)"}},
        .bytes = 8},
       {.names = {{Dimension::kNative, "thread;ask;malloc"}, {Dimension::kLine, "thread;ask"}},
        .bytes = 4},
       {.names = {{Dimension::kPython, "main;step;empty"}, {Dimension::kLine, "main;step;empty"}},
        .bytes = 2},
       {.names = {{Dimension::kTag, "mine"}, {Dimension::kLine, "main"}}, .bytes = 1}});
  KeywordRule rule = Rule("A", {"nothing"});
  rule.over = {Dimension::kTag, Dimension::kPython};
  const util::Result<KeywordReport> report = pieces.Ask(Query({rule}));
  ASSERT_TRUE(report.ok());
  const std::vector<KeywordEntry>& others = report->tables[0].others.entries;
  EXPECT_THAT(NamesOf(others), ElementsAre("MulBackward0 (backward)", "ask", "empty", "mine"));
  EXPECT_EQ(others[0].dimension, "line");
  ASSERT_EQ(report->unnamed.size(), 3u);
  EXPECT_EQ(report->unnamed[0].line, "MulBackward0 (backward)");
  EXPECT_THAT(report->unnamed[0].frames, ElementsAre("MulBackward0 (backward)"));
  EXPECT_THAT(report->unnamed[1].frames, ElementsAre("ask", "thread")) << "malloc hands it out";
  EXPECT_THAT(report->unnamed[2].frames, ElementsAre("empty", "step", "main"));
}

TEST(Keywords, WhatAStackMatchesIsCalledByItsLine) {
  KeywordRule rule = Rule("Convolution", {"conv"});
  rule.over = {Dimension::kPython};
  const KeywordTable table =
      TableOf({{.names = {{Dimension::kPython, "main;step;conv"}, {Dimension::kLine, "main;step"}},
                .bytes = 2}},
              Query({rule}));
  EXPECT_THAT(NamesOf(table.categories[0].entries), ElementsAre("step"));
  EXPECT_EQ(table.categories[0].entries[0].dimension, "line");
}

TEST(Keywords, LinesTellApartOnlyWhatHasNoOtherName) {
  const auto at = [](const std::string& tag, const std::string& line) {
    std::map<Dimension, std::string> names = {{Dimension::kLine, line}};
    if (!tag.empty())
      names[Dimension::kTag] = tag;
    return LivePiece{.names = std::move(names), .bytes = 1};
  };
  const KeywordTable table =
      TableOf({at("x", "f"), at("x", "g"), at("", "f"), at("", "g")}, Query({Rule("X", {"x"})}));
  EXPECT_EQ(table.categories[0].rows, 1u);
  EXPECT_EQ(table.categories[0].count, 2u);
  EXPECT_THAT(NamesOf(table.others.entries), ElementsAre("f", "g"));
}

TEST(Keywords, AFallbackTakesOnlyWhatNoOtherRuleMatches) {
  KeywordRule fallback = Rule("Rest", {"conv", "relu"});
  fallback.fallback = true;
  const KeywordTable table =
      TableOf({Tagged("conv0", 4), Tagged("relu0", 2)}, Query({fallback, Rule("Conv", {"conv"})}));
  EXPECT_EQ(BytesOf(table, "Conv"), 4u);
  EXPECT_EQ(BytesOf(table, "Rest"), 2u);
  EXPECT_THAT(table.overlaps, IsEmpty());
}

}  // namespace
}  // namespace vramscope::query
