// SPDX-License-Identifier: Apache-2.0
// Sentences of a diff, on programs of a few allocations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/units.h"
#include "query/diff/diff.h"
#include "query/testing/random_recording.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Phase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

struct Piece {
  Category category = Category::kActivation;
  uint32_t line = 1;
  int64_t begin_ns = 0;
  int64_t end_ns = tables::kNever;
  uint64_t bytes = kMiB;
  std::string module;
  std::string parameter;
  Phase phase = Phase::kForward;
};

// A program on the CPU whose iteration k is (k * 100, k * 100 + 100].
struct Program {
  std::vector<Piece> pieces;
  int64_t iterations = 0;
  uint64_t mapped_bytes = 0;
  bool checkpoints = false;  // its stacks go through torch.utils.checkpoint

  std::unique_ptr<tables::MemoryRecording> Make() const {
    RecordingBuilder builder;
    const auto device = builder.Device(tables::DeviceKind::kCpu, -1);
    const auto process = builder.Process(7, 100'000);
    const auto account = builder.Account(process, device);
    std::map<int64_t, int64_t> changes;
    for (const Piece& piece : pieces) {
      tables::FrameRow frame;
      frame.file = builder.Text("train.py");
      frame.function = builder.Text("f");
      frame.line = piece.line;
      const tables::FrameId id{builder.Append(builder.tables.frames, frame)};
      tables::SiteRow row = builder.SiteOf(account, format::Part::kAllocated, piece.category);
      row.owner = row.allocator = builder.Text("PyTorch");
      row.phase = piece.phase;
      row.module = piece.module.empty() ? tables::StringId{} : builder.Text(piece.module);
      row.parameter = piece.parameter.empty() ? tables::StringId{} : builder.Text(piece.parameter);
      row.stack = row.place =
          tables::StackId{builder.Append(builder.tables.stacks, {tables::StackId{}, id})};
      builder.Row(builder.Site(row), piece.begin_ns, piece.end_ns, piece.bytes);
      changes[piece.begin_ns] += static_cast<int64_t>(piece.bytes);
      changes[piece.end_ns] -= static_cast<int64_t>(piece.bytes);
    }
    int64_t now = 0;
    tables::PeakRow peak{device, 0, 0, 0};
    for (const auto& [time_ns, change] : changes) {
      now += change;
      if (now > static_cast<int64_t>(peak.bytes))
        peak = {device, time_ns, static_cast<uint64_t>(now), 0};
    }
    builder.tables.peaks.push_back(peak);
    for (int64_t k = 0; k < iterations; ++k)
      builder.tables.iterations.push_back({process, k, k * 100, k * 100 + 100});
    if (checkpoints) {
      tables::FrameRow frame;
      frame.kind = tables::FrameKind::kPython;
      frame.file = builder.Text("/site-packages/torch/utils/checkpoint.py");
      frame.function = builder.Text("checkpoint");
      builder.Append(builder.tables.frames, frame);
    }
    if (mapped_bytes != 0)
      builder.tables.losses.push_back({builder.Text("names of unknown memory"), 1, mapped_bytes});
    return builder.Make();
  }
};

Diff Compare(const Program& a, const Program& b) {
  const auto x = a.Make();
  const auto y = b.Make();
  auto diff = MakeDiff(*x, *y);
  EXPECT_TRUE(diff.ok()) << diff.status().message();
  return diff.ok() ? *diff : Diff{};
}

// A state that is carried from call to call holds the graph of all of them; detached, it does not,
// and what was an activation is a temporary. No size has changed.
TEST(DiffCausesTest, AReleasedGraphIsNoSmallerBatch) {
  Program a;
  Program b;
  for (int64_t i = 0; i < 10; ++i) {
    const int64_t at = 100 * i;
    for (const uint64_t bytes : {4 * kMiB, 100 * kKiB}) {
      a.pieces.push_back({.line = 5, .begin_ns = at + 10, .bytes = bytes, .module = "GRU"});
      b.pieces.push_back(
          {.category = bytes == 4 * kMiB ? Category::kTemporary : Category::kActivation,
           .line = 5,
           .begin_ns = at + 10,
           .end_ns = at + (bytes == 4 * kMiB ? 50 : 90),
           .bytes = bytes,
           .module = "GRU"});
    }
  }
  EXPECT_THAT(Compare(a, b).causes,
              ElementsAre("36.9 MiB of activations of GRU are released earlier in B: A holds them "
                          "at its peak; both allocate the same at train.py:5 in f"));
  EXPECT_THAT(Compare(b, a).causes, ElementsAre(HasSubstr("are held longer in B")));
}

// Recomputation lets go of what the same calls gave, too.
TEST(DiffCausesTest, RecomputationIsNoEarlierRelease) {
  Program a;
  Program b;
  for (int64_t i = 0; i < 10; ++i) {
    const int64_t at = 100 * i;
    a.pieces.push_back({.line = 5, .begin_ns = at + 10, .bytes = 4 * kMiB});
    b.pieces.push_back({.line = 5, .begin_ns = at + 10, .end_ns = at + 50, .bytes = 4 * kMiB});
  }
  b.checkpoints = true;
  EXPECT_THAT(Compare(a, b).causes, ElementsAre(HasSubstr("B recomputes them in backward")));
  EXPECT_THAT(Compare(b, a).causes, ElementsAre(HasSubstr("A recomputes them in backward")));
}

// A line that makes something kept and something large.
TEST(DiffCausesTest, AKeptPieceDoesNotHideALargeOne) {
  Program a;
  Program b;
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t at = 100 * i;
    a.pieces.push_back({.line = 6, .begin_ns = at + 10, .end_ns = at + 50, .bytes = 16 * kMiB});
    a.pieces.push_back({.line = 6, .begin_ns = at + 5, .end_ns = at + 105, .bytes = 256 * kKiB});
    b.pieces.push_back({.line = 6, .begin_ns = at + 10, .end_ns = at + 50, .bytes = kMiB});
  }
  a.iterations = b.iterations = 4;
  const Diff diff = Compare(a, b);
  ASSERT_THAT(diff.causes, SizeIs(2));
  EXPECT_THAT(diff.causes[0], HasSubstr("activations shrank by 15.0 MiB"));
  EXPECT_THAT(diff.causes[1], HasSubstr("256 KiB of activations are freed within their iteration"));
}

// `logits = logits.float()`, which only A has: B does not free it earlier, it never makes it.
TEST(DiffCausesTest, WhatIsNeverAllocatedIsNotFreedEarlier) {
  Program a;
  Program b;
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t at = 100 * i;
    a.pieces.push_back({.line = 5, .begin_ns = at + 10, .end_ns = at + 50, .bytes = 4 * kMiB});
    b.pieces.push_back({.line = 5, .begin_ns = at + 10, .end_ns = at + 50, .bytes = 4 * kMiB});
    a.pieces.push_back({.line = 6, .begin_ns = at + 15, .end_ns = at + 112, .bytes = 16 * kMiB});
  }
  a.iterations = b.iterations = 4;
  EXPECT_THAT(Compare(a, b).causes, ElementsAre(HasSubstr("activations are gone: 16.0 MiB")));
  EXPECT_THAT(Compare(b, a).causes, ElementsAre(HasSubstr("activations appeared: 16.0 MiB")));
}

// Where a process has several models, their names begin with a class.
TEST(DiffCausesTest, ASecondModelDoesNotRenameTheFirst) {
  const auto model = [](const std::string& prefix) {
    std::vector<Piece> pieces;
    for (const char* const layer : {"0", "2"}) {
      pieces.push_back({.category = Category::kParameter,
                        .line = 2,
                        .module = prefix + layer,
                        .parameter = prefix + layer + ".weight",
                        .phase = Phase::kOther});
    }
    return pieces;
  };
  Program a{.pieces = model("")};
  Program b{.pieces = model("Sequential.")};
  const std::vector<Piece> copy = model("Sequential#2.");
  b.pieces.insert(b.pieces.end(), copy.begin(), copy.end());
  EXPECT_THAT(Compare(a, b).causes,
              ElementsAre("layers Sequential#2.{0,2} are new: 2.00 MiB of parameters"));
  EXPECT_THAT(Compare(b, a).causes,
              ElementsAre("layers Sequential#2.{0,2} are gone: 2.00 MiB of parameters"));
}

Program Precision(uint64_t parts) {
  Program program;
  for (const char* const name : {"0.weight", "0.bias", "2.weight"}) {
    program.pieces.push_back({.category = Category::kParameter,
                              .line = 2,
                              .bytes = parts * (name[2] == 'w' ? kMiB : kKiB),
                              .module = std::string(1, name[0]),
                              .parameter = name,
                              .phase = Phase::kOther});
  }
  program.pieces.push_back({.line = 4, .begin_ns = 10, .bytes = parts * kMiB, .module = "0"});
  return program;
}

TEST(DiffCausesTest, HalfPrecisionIsNoNarrowerLayer) {
  const Diff diff = Compare(Precision(4), Precision(2));
  ASSERT_THAT(diff.causes, SizeIs(1));
  EXPECT_EQ(diff.causes[0],
            "parameters of layers [0,2] x2 shrank by 4.00 MiB (activations -2.00 MiB) (0.50x): "
            "consistent "
            "with elements of another size, bf16 or fp16 instead of float32");
  EXPECT_THAT(Compare(Precision(2), Precision(4)).causes,
              ElementsAre(HasSubstr("float32 instead of bf16 or fp16")));
}

TEST(DiffCausesTest, MappedParametersAreNotGone) {
  const Program a{.pieces = {{.category = Category::kParameter,
                              .bytes = 4 * kMiB,
                              .module = "Linear",
                              .parameter = "weight",
                              .phase = Phase::kOther},
                             {.line = 3, .begin_ns = 10, .end_ns = 20, .module = "Linear"}}};
  const Program b{.pieces = {{.line = 3, .begin_ns = 10, .end_ns = 20, .module = "Linear"}},
                  .mapped_bytes = 4 * kMiB};
  EXPECT_THAT(
      Compare(a, b).causes,
      ElementsAre("4.00 MiB of parameters of Linear are in no allocation of B, which maps or "
                  "shares them (4.00 MiB of named memory)"));
}

// Both make the same gradients; A peaks before them.
TEST(DiffCausesTest, WhatMovedWithThePeakDidNotAppear) {
  const auto program = [](uint64_t forward) {
    return Program{.pieces = {{.line = 3, .begin_ns = 10, .end_ns = 40, .bytes = forward},
                              {.category = Category::kGradient,
                               .line = 5,
                               .begin_ns = 50,
                               .end_ns = 60,
                               .bytes = 10 * kMiB,
                               .module = "0",
                               .parameter = "0.weight",
                               .phase = Phase::kBackward}}};
  };
  const Diff diff = Compare(program(12 * kMiB), program(8 * kMiB));
  EXPECT_THAT(diff.notes, ElementsAre("the peaks are at different moments: A's in forward at "
                                      "train.py:3 in f, B's in backward at train.py:5 in f"));
  EXPECT_THAT(diff.causes,
              ElementsAre("activations: 12.0 MiB at the peak of A, none at B's: train.py:3 in f",
                          "gradients of layer 0: 10.0 MiB at the peak of B, none at A's"));
}

TEST(DiffCausesTest, MoreIterationsOfOneLeak) {
  const auto leaking = [](int64_t iterations) {
    Program program{.iterations = iterations};
    for (int64_t k = 0; k < iterations; ++k)
      program.pieces.push_back({.category = Category::kInput, .line = 8, .begin_ns = k * 100 + 10});
    return program;
  };
  const Diff diff = Compare(leaking(5), leaking(12));
  ASSERT_THAT(diff.causes, SizeIs(1));
  EXPECT_EQ(
      diff.causes[0],
      "1.00 MiB per iteration are never freed in A and in B: train.py:8 in f (inputs); B has 7 "
      "more iterations, +7.00 MiB");
}

}  // namespace
}  // namespace vramscope::query
