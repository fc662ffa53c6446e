// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/state/requester.h"

#include <gtest/gtest.h>

namespace vramscope::probe::cuda {
namespace {

TEST(Requester, IsToldByTheNameOfTheFile) {
  EXPECT_EQ(ClassifyBinary("/venv/torch/lib/libc10_cuda.so"), Requester::kPyTorch);
  EXPECT_EQ(ClassifyBinary("/venv/nvidia/nccl/lib/libnccl.so.2"), Requester::kCommunicator);
  EXPECT_EQ(ClassifyBinary("libtorch_cuda.so"), Requester::kCommunicator);
  EXPECT_EQ(ClassifyBinary("/usr/lib/libmpi.so.40"), Requester::kCommunicator);
  EXPECT_EQ(ClassifyBinary("/usr/lib/libcublasLt.so.13"), Requester::kLibrary);
  EXPECT_EQ(ClassifyBinary("/home/me/libnccl/solver"), Requester::kProgram);
  EXPECT_EQ(ClassifyBinary(""), Requester::kProgram);
}

TEST(Requester, IsTheProgramWhereItAsksItself) {
  EXPECT_EQ(FindRequester(), Requester::kProgram);
  EXPECT_EQ(FindRegionTag(), nullptr);
}

}  // namespace
}  // namespace vramscope::probe::cuda
