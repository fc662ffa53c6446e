// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "output/report_fixture.h"
#include "output/text/text_parts.h"

namespace vramscope::output {
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
