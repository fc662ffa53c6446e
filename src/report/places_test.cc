// SPDX-License-Identifier: Apache-2.0
#include "report/places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/report_fixture.h"

namespace vramscope::report {
namespace {

using testing::ElementsAre;

TEST(PlacesTest, CallersAreUserFramesBeyondTheInnermost) {
  FakeTrace trace;
  const auto main = trace.PythonStack({}, "<module>", "/home/u/train.py", 90);
  const auto frozen = trace.PythonStack(main, "_call", "<frozen importlib._bootstrap>", 5);
  const auto step = trace.PythonStack(frozen, "Trainer.step", "/home/u/train.py", 52);
  const auto torch = trace.PythonStack(step, "Module._call_impl",
                                       "/v/lib/python3.11/site-packages/torch/module.py", 1501);
  const auto inner = trace.PythonStack(torch, "Net.forward.<locals>.f", "/home/u/model.py", 7);
  const auto linear =
      trace.PythonStack(inner, "linear", "/usr/lib/python3/dist-packages/torch/f.py", 1);
  EXPECT_THAT(Callers(trace, linear, 10), ElementsAre("train.py:52 step", "train.py:90 <module>"));
  EXPECT_THAT(Callers(trace, linear, 1), ElementsAre("train.py:52 step"));
  EXPECT_THAT(Callers(trace, {}, 10), ElementsAre());
  EXPECT_EQ(ShortFrame(trace, trace.stack(inner).frame), "model.py:7 f");
}

TEST(PlacesTest, NativeFrames) {
  FakeTrace trace;
  const auto start = trace.NativeStack({}, "_start", "", 0, "/srv/solver/solver");
  const auto main =
      trace.NativeStack(start, "main", "/srv/solver/main.cu", 30, "/srv/solver/solver");
  const auto solve =
      trace.NativeStack(main, "solve::Jacobi(int, float*)", "", 0, "/srv/solver/solver");
  const auto driver = trace.NativeStack(solve, "cuMemAlloc_v2", "", 0, "/usr/lib/libcuda.so.1");
  EXPECT_THAT(Callers(trace, driver, 10), ElementsAre("main.cu:30 main"));
  EXPECT_EQ(ShortFrame(trace, trace.stack(solve).frame), "solver solve::Jacobi");
  EXPECT_EQ(ShortFrame(trace, trace.stack(driver).frame), "libcuda.so.1 cuMemAlloc_v2");
}

TEST(PlacesTest, AStackThatCallsItselfEnds) {
  FakeTrace trace;
  const auto loop = trace.PythonStack(trace::StackId{1}, "f", "/home/u/a.py", 1);
  ASSERT_EQ(loop.value, 1u);
  EXPECT_LE(StackFrames(trace, loop).size(), trace.stack_count());
}

}  // namespace
}  // namespace vramscope::report
