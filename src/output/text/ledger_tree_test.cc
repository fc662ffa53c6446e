// SPDX-License-Identifier: Apache-2.0
#include "output/text/ledger_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "output/report_fixture.h"
#include "output/text/text_parts.h"

namespace vramscope::output {
namespace {

std::vector<std::string> Text(const LedgerTree& tree, size_t max_lines, uint64_t smallest = 0) {
  std::vector<std::string> out;
  for (const TreeLine& line : tree.Lines({max_lines, smallest})) {
    out.push_back(std::string(line.depth, '.') + line.name + " " + std::to_string(line.bytes) +
                  " " + std::to_string(line.count));
  }
  return out;
}

TEST(LedgerTreeTest, SumsAndSorts) {
  const LedgerTree tree({{{"b", "x"}, 1, 1}, {{"a", "y"}, 5, 2}, {{"b", "z"}, 10, 3}});
  EXPECT_EQ(tree.total_bytes(), 16u);
  EXPECT_THAT(Text(tree, 100), testing::ElementsAre("b 11 4", ".z 10 3", ".x 1 1", "a / y 5 2"));
  EXPECT_EQ(tree.full_lines(), 4u);
}

TEST(LedgerTreeTest, WhatHasNoRoomSharesALine) {
  const LedgerTree tree({{{"a", "x"}, 50, 1},
                         {{"a", "y"}, 30, 1},
                         {{"a", "z"}, 2, 1},
                         {{"b"}, 10, 1},
                         {{"c"}, 5, 1},
                         {{"d"}, 1, 1}});
  EXPECT_THAT(Text(tree, 4),
              testing::ElementsAre("a 82 3", ".x 50 1", ".(2 more) 32 2", "(3 more) 16 3"));
  EXPECT_THAT(Text(tree, 5),
              testing::ElementsAre("a 82 3", ".x 50 1", ".y 30 1", ".z 2 1", "(3 more) 16 3"));
}

TreeLeaf Layer(const std::string& module, const std::string& parameter, uint64_t bytes) {
  TreeLeaf leaf{.path = {}, .bytes = bytes, .count = 1};
  AppendNameLevels(module, &leaf);
  leaf.path.push_back(parameter);
  leaf.repeats.assign(leaf.path.size(), true);
  return leaf;
}

TEST(LedgerTreeTest, RepeatedLayersAreOneNodeWithTheSumsOfEachLevel) {
  std::vector<TreeLeaf> leaves;
  for (int layer = 0; layer < 12; ++layer) {
    const std::string name = "h." + std::to_string(layer);
    leaves.push_back(Layer(name + ".a", name + ".a.weight", layer == 0 ? 900 : 100));
    leaves.push_back(Layer(name + ".b", name + ".b.weight", 50));
  }
  const LedgerTree tree(leaves);
  std::vector<std::string> told;
  for (const TreeLine& line : tree.Lines({})) {
    told.push_back(std::string(line.depth, ' ') + line.name + " x" + std::to_string(line.repeats) +
                   " " + std::to_string(line.bytes) + " " + std::to_string(line.count));
  }
  EXPECT_THAT(told,
              testing::ElementsAre("h x1 2600 24", " [1-11] x11 1650 22",
                                   "  a / h.[1-11].a.weight x11 1100 11",
                                   "  b / h.[1-11].b.weight x11 550 11", " 0 x1 950 2",
                                   "  a / h.0.a.weight x1 900 1", "  b / h.0.b.weight x1 50 1"));
}

TEST(LedgerTreeTest, WhatIsNotAlikeOrNoLayerStaysApart) {
  TreeLeaf iteration{.path = {"1"}, .bytes = 10, .count = 1};
  TreeLeaf next{.path = {"2"}, .bytes = 10, .count = 1};
  EXPECT_THAT(Text(LedgerTree({iteration, next}), 9), testing::ElementsAre("1 10 1", "2 10 1"));
  iteration.repeats = next.repeats = {true};
  EXPECT_THAT(Text(LedgerTree({iteration, next}), 9), testing::ElementsAre("[1,2] 20 2"));
  next.bytes = 11;
  EXPECT_EQ(LedgerTree({iteration, next}).full_lines(), 2u);
  const LedgerTree other({Layer("h.0.a", "w", 10), Layer("h.1.b", "w", 10)});
  EXPECT_EQ(other.full_lines(), 3u);
}

// A parent has all its bytes, however little of what is below it has a line.
TEST(LedgerTreeTest, ALimitOfNodesLeavesSumsWhole) {
  const LedgerTree tree({{{"a", "x"}, 30, 1},
                         {{"a", "y"}, 29, 1},
                         {{"b", "x"}, 28, 1},
                         {{"a", "z"}, 27, 1},
                         {{"c"}, 5, 1}});
  std::vector<std::string> out;
  for (const TreeLine& line : tree.Lines({.most_nodes = 3}))
    out.push_back(std::string(line.depth, '.') + line.name + " " + std::to_string(line.bytes));
  EXPECT_THAT(out, testing::ElementsAre("a 86", ".x 30", ".y 29", ".(1 more) 27", "(2 more) 33"));
}

TEST(LedgerTreeTest, OfOneNameWithDifferentCallers) {
  TreeLeaf one{{"f"}, 5, 1, {}, {"< a"}};
  TreeLeaf other{{"f"}, 3, 1, {}, {"< b"}};
  const std::vector<TreeLine> lines = LedgerTree({one, other, one}).Lines({});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].below, "< a");
  EXPECT_EQ(lines[0].bytes, 10u);
  EXPECT_EQ(lines[1].below, "< b");
}

TEST(LedgerTreeTest, NothingStandsAloneInMore) {
  const LedgerTree tree({{{"a"}, 50, 1}, {{"b"}, 30, 1}, {{"c"}, 1, 1}});
  // "(1 more)" would take the line that c itself can have.
  EXPECT_THAT(Text(tree, 3, 10), testing::ElementsAre("a 50 1", "b 30 1", "c 1 1"));
}

TEST(LedgerTreeTest, SmallOnesAreCollapsed) {
  const LedgerTree tree({{{"a"}, 50, 1}, {{"b"}, 30, 1}, {{"c"}, 1, 1}, {{"d"}, 1, 1}});
  EXPECT_THAT(Text(tree, 10, 10), testing::ElementsAre("a 50 1", "b 30 1", "(2 more) 2 2"));
}

TEST(LedgerTreeTest, ALeafThatOthersGoOnFrom) {
  const LedgerTree tree({{{"a"}, 3, 1}, {{"a", "b"}, 2, 1}, {{}, 1, 1}});
  EXPECT_THAT(Text(tree, 10),
              testing::ElementsAre("a 5 2", ".(itself) 3 1", ".b 2 1", "(itself) 1 1"));
}

TreeLeaf Named(const std::string& name, uint64_t bytes) {
  TreeLeaf leaf{{}, bytes, 1};
  AppendNameLevels(name, &leaf);
  return leaf;
}

TEST(LedgerTreeTest, NamesFoldAtTheirSeparators) {
  EXPECT_THAT(Named("a.b/c", 1).path, testing::ElementsAre("a", ".b", "/c"));
  EXPECT_THAT(Named(".a..b.", 1).path, testing::ElementsAre(".a", "..b."));
  EXPECT_THAT(Named("(no module)", 1).path, testing::ElementsAre("(no module)"));
  EXPECT_THAT(Named("", 1).path, testing::ElementsAre(""));
  const LedgerTree tree({Named("gpt.h.0.mlp", 10), Named("gpt.h.0.attn", 20),
                         Named("gpt.h.1.mlp", 5), Named("gpt.h.1", 2), Named("(none)", 1)});
  EXPECT_THAT(Text(tree, 20),
              testing::ElementsAre("gpt.h 37 4", ".0 30 2", "..attn 20 1", "..mlp 10 1", ".1 7 2",
                                   "..mlp 5 1", "..(itself) 2 1", "(none) 1 1"));
}

TEST(LedgerTreeTest, EmptyAndTiny) {
  EXPECT_TRUE(LedgerTree({}).Lines({}).empty());
  EXPECT_TRUE(LedgerTree({{{"slack"}, 0, 0}}).Lines({}).empty());
  EXPECT_THAT(Text(LedgerTree({{{"a"}, 1, 1}, {{"b"}, 1, 1}}), 1),
              testing::ElementsAre("(2 more) 2 2"));
}

// Whatever the leaves and the room: never too many lines, and what is shown below a shown line, or
// at the top, adds up.
TEST(LedgerTreeTest, ShownLinesAddUp) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<TreeLeaf> leaves;
    const size_t count = 1 + random() % 30;
    for (size_t i = 0; i < count; ++i) {
      TreeLeaf leaf;
      for (size_t depth = random() % 4 + 1; depth > 0; --depth) {
        leaf.path.push_back(std::string(1, static_cast<char>('a' + random() % 3)));
      }
      leaf.bytes = random() % 1000;
      leaf.count = 1;
      leaves.push_back(std::move(leaf));
    }
    const LedgerTree tree(leaves);
    const size_t max_lines = 1 + random() % 20;
    const std::vector<TreeLine> lines = tree.Lines({max_lines, random() % 100});
    EXPECT_LE(lines.size(), max_lines);
    uint64_t top = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].depth == 0)
        top += lines[i].bytes;
      EXPECT_NE(lines[i].name, "(1 more)");
      uint64_t below = 0;
      bool any = false;
      for (size_t j = i + 1; j < lines.size() && lines[j].depth > lines[i].depth; ++j) {
        if (lines[j].depth != lines[i].depth + 1)
          continue;
        below += lines[j].bytes;
        any = true;
      }
      if (any) {
        EXPECT_EQ(below, lines[i].bytes);
      }
    }
    EXPECT_EQ(top, tree.total_bytes());
  }
}

}  // namespace

namespace {

TEST(StackNames, CxxFunctionsByTheirLastTwoNames) {
  EXPECT_EQ(ShortCxxName("cudaMalloc"), "cudaMalloc");
  EXPECT_EQ(ShortCxxName("at::detail::empty_cuda(c10::ArrayRef<long>, bool)"),
            "detail::empty_cuda");
  EXPECT_EQ(ShortCxxName("void at::native::gather<16l, long>(char*, int)"), "native::gather");
  EXPECT_EQ(ShortCxxName("at::native::(anonymous namespace)::f(int) [clone .isra.0]"), "native::f");
  EXPECT_EQ(ShortCxxName("(anonymous namespace)::f(int)"), "f");
  EXPECT_EQ(ShortCxxName("void k<false>::operator()<at::A>(at::B&)"), "k::operator()");
  EXPECT_EQ(ShortCxxName("ns::operator<<(std::ostream&, X const&)"), "ns::operator<<");
  EXPECT_EQ(ShortCxxName("(int)"), "(int)");
  EXPECT_EQ(ShortCxxName("at::native::f(int)::{lambda()#1}::operator()() const"),
            "{lambda#1}::operator()");
  EXPECT_EQ(ShortCxxName("long at::Tensor::item<long>() const &"), "Tensor::item");
}

TEST(StackNames, TheHeadIsTheInnermostFrameThatNoOtherHas) {
  FakeRecording recording;
  const std::string library = "/usr/lib/python3/dist-packages/torch/linear.py";
  tables::StackId stack = recording.PythonStack({}, "main", "/u/train.py", 90);
  stack = recording.PythonStack(stack, "call", library, 1);
  recording.PythonStack(stack, "forward", library, 116);
  StackNames names(recording, query::Dimension::kPython, {});
  const std::string attention =
      "train.py:90 in main;linear.py:1 in call;a.py:5 in attend;linear.py:116 in forward";
  const std::string mlp =
      "train.py:90 in main;linear.py:1 in call;a.py:7 in mlp;linear.py:116 in forward";
  names.Add(attention);
  names.Add(mlp);
  EXPECT_EQ(names.Of(attention).head, "a.py:5 in attend, through linear.py:116 in forward");
  EXPECT_EQ(names.Of(mlp).head, "a.py:7 in mlp, through linear.py:116 in forward");
  // Library code between the user's frames says nothing.
  EXPECT_EQ(names.Of(mlp).callers, "< train.py:90 in main");
  EXPECT_EQ(names.Of("(no stack)").head, "(no stack)");
}

TEST(StackNames, FunctionsThatNobodyKnowsAreLeftOut) {
  FakeRecording recording;
  StackNames names(recording, query::Dimension::kNative, {});
  const std::string stack =
      "main (solver);x::make(int) (solver);cudaMalloc (libcudart.so.13);0x7f01 (libcudart.so.13)";
  names.Add(stack);
  EXPECT_EQ(names.Of(stack).head, "cudaMalloc");
  EXPECT_EQ(names.Of(stack).callers, "< x::make < main");
  EXPECT_EQ(names.Of("0x7f02 (libb.so);0x7f01 (liba.so)").head, "liba.so");
  EXPECT_EQ(names.Of("solve.cc:12 in x::solve(double (*)(int))").head, "solve.cc:12 in x::solve");
}

}  // namespace

}  // namespace vramscope::output
