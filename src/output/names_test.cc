// SPDX-License-Identifier: Apache-2.0
#include "output/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "output/report_fixture.h"

namespace vramscope::output {
namespace {

using testing::ElementsAre;

TEST(FramesTest, CallersAreUserFramesBeyondTheInnermost) {
  FakeRecording recording;
  const auto main = recording.PythonStack({}, "<module>", "/home/u/train.py", 90);
  const auto frozen = recording.PythonStack(main, "_call", "<frozen importlib._bootstrap>", 5);
  const auto step = recording.PythonStack(frozen, "Trainer.step", "/home/u/train.py", 52);
  const auto torch = recording.PythonStack(step, "Module._call_impl",
                                           "/v/lib/python3.11/site-packages/torch/module.py", 1501);
  const auto inner = recording.PythonStack(torch, "Net.forward.<locals>.f", "/home/u/model.py", 7);
  const auto linear =
      recording.PythonStack(inner, "linear", "/usr/lib/python3/dist-packages/torch/f.py", 1);
  EXPECT_THAT(Callers(recording, linear, 10),
              ElementsAre("train.py:52 step", "train.py:90 <module>"));
  EXPECT_THAT(Callers(recording, linear, 1), ElementsAre("train.py:52 step"));
  EXPECT_THAT(Callers(recording, {}, 10), ElementsAre());
  EXPECT_EQ(ShortFrame(recording, recording.tables().stacks[inner.value].frame), "model.py:7 f");
}

TEST(FramesTest, NativeFrames) {
  FakeRecording recording;
  const auto start = recording.NativeStack({}, "_start", "", 0, "/srv/solver/solver");
  const auto main =
      recording.NativeStack(start, "main", "/srv/solver/main.cu", 30, "/srv/solver/solver");
  const auto solve =
      recording.NativeStack(main, "solve::Jacobi(int, float*)", "", 0, "/srv/solver/solver");
  const auto driver = recording.NativeStack(solve, "cuMemAlloc_v2", "", 0, "/usr/lib/libcuda.so.1");
  EXPECT_THAT(Callers(recording, driver, 10), ElementsAre("main.cu:30 main"));
  EXPECT_EQ(ShortFrame(recording, recording.tables().stacks[solve.value].frame),
            "solver solve::Jacobi");
  EXPECT_EQ(ShortFrame(recording, recording.tables().stacks[driver.value].frame),
            "libcuda.so.1 cuMemAlloc_v2");
}

}  // namespace

}  // namespace vramscope::output
