// SPDX-License-Identifier: Apache-2.0
// What resolve takes for the user's own code, and how frames read.
#include "query/dimensions/frames.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "ledger/report_text.h"
#include "ledger/trace_builder.h"

namespace vramscope::query {
namespace {

TEST(FormatFrameTest, SaysFileLineAndFunction) {
  TraceBuilder trace;
  const auto python =
      trace.Python({{"/home/me/train.py", 42, "Net.forward"}, {"<frozen x>", 0, ""}});
  const auto native = trace.Native({"/usr/lib/libfoo.so"});
  const std::unique_ptr<tables::Recording> recording = Analyse(trace);
  const auto innermost = [&](tables::StackId id) {
    return recording->tables().stacks[id.value].frame;
  };
  const tables::StackId caller = recording->tables().stacks[python.value].parent;
  EXPECT_EQ(FormatFrame(*recording, recording->tables().stacks[caller.value].frame),
            "train.py:42 in Net.forward");
  EXPECT_EQ(FormatFrame(*recording, innermost(python)), "<frozen x>");
  EXPECT_EQ(FormatFrame(*recording, innermost(native)), "f (libfoo.so)");
  EXPECT_EQ(FormatFrame(*recording, tables::FrameId{}), "(no stack)");
}

TEST(UserFramesTest, SkipsLibrariesAndTheStandardLibrary) {
  TraceBuilder trace;
  const auto stack =
      trace.Python({{"/home/me/train.py", 42, "main"},
                    {"/v/lib/python3.11/site-packages/torch/nn/modules/linear.py", 7, "forward"},
                    {"<frozen importlib>", 1, "x"},
                    {"/usr/lib/python3.11/threading.py", 1, "run"}});
  const auto library = trace.Python({{"/usr/lib/python3/dist-packages/torch/x.py", 3, "f"}});
  const auto cell = trace.Python({{"<stdin>", 1, "<module>"}});
  const auto traced = trace.Python({{"/home/me/train.py", 43, "main"},
                                    {"<eval_with_key>.1 from train.py:4 in f", 8, "forward"}});
  const auto compiled = trace.Python(
      {{"/home/me/train.py", 44, "main"},
       {"/tmp/cache/zz/czzdj4hz6uz7mpdqqqaahzu6hxbnhbhbxyqg4dpa5lwxmw2ct3nf.py", 90, "call"}});
  const auto native = trace.Native({"/usr/lib/x86_64-linux-gnu/libc.so.6", "/home/me/solver",
                                    "/usr/lib/libfoo.so", "/x/libcublas.so.13"});
  const std::unique_ptr<tables::Recording> recording = Analyse(trace);
  UserFrames frames(*recording);
  const auto place = [&](tables::StackId id) { return FormatFrame(*recording, frames.Of(id)); };
  EXPECT_EQ(place(stack), "train.py:42 in main");
  EXPECT_EQ(place(stack), "train.py:42 in main");
  EXPECT_EQ(place(library), "x.py:3 in f");  // there is nothing better
  EXPECT_EQ(place(cell), "<stdin>:1 in <module>");
  EXPECT_EQ(place(traced), "train.py:43 in main");
  EXPECT_EQ(place(compiled), "train.py:44 in main");
  EXPECT_EQ(place(native), "f (solver)");
  EXPECT_EQ(place(tables::StackId{}), "(no stack)");
  EXPECT_EQ(place(tables::StackId{9999}), "(no stack)");
}

}  // namespace
}  // namespace vramscope::query
