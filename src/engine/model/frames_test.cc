// SPDX-License-Identifier: Apache-2.0
#include "engine/model/frames.h"

#include <gtest/gtest.h>

#include "engine/testing/trace_builder.h"

namespace vramscope::engine {
namespace {

TEST(DescribeFrameTest, SaysFileLineAndFunction) {
  TraceBuilder trace;
  const auto python =
      trace.Python({{"/home/me/train.py", 42, "Net.forward"}, {"<frozen x>", 0, ""}});
  EXPECT_EQ(DescribeFrame(trace, trace.stack(trace.stack(python).parent).frame),
            "train.py:42 in Net.forward");
  EXPECT_EQ(DescribeFrame(trace, trace.stack(python).frame), "<frozen x>");
  const auto native = trace.Native({"/usr/lib/libfoo.so"});
  EXPECT_EQ(DescribeFrame(trace, trace.stack(native).frame), "f (libfoo.so)");
  EXPECT_EQ(DescribeFrame(trace, trace::FrameId{}), "(no stack)");
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
  const auto native = trace.Native({"/usr/lib/x86_64-linux-gnu/libc.so.6", "/home/me/solver",
                                    "/usr/lib/libfoo.so", "/x/libcublas.so.13"});
  UserFrames frames(trace);
  const auto place = [&](trace::StackId id) { return DescribeFrame(trace, frames.Innermost(id)); };
  EXPECT_EQ(place(stack), "train.py:42 in main");
  EXPECT_EQ(place(stack), "train.py:42 in main");
  EXPECT_EQ(place(library), "x.py:3 in f");  // there is nothing better
  EXPECT_EQ(place(cell), "<stdin>:1 in <module>");
  EXPECT_EQ(place(native), "f (solver)");
  EXPECT_EQ(place(trace::StackId{}), "(no stack)");
  EXPECT_EQ(place(trace::StackId{9999}), "(no stack)");
}

}  // namespace
}  // namespace vramscope::engine
