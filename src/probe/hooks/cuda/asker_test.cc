// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/asker.h"

#include <gtest/gtest.h>

namespace vramscope::probe::cuda {
namespace {

TEST(Asker, IsToldByTheNameOfTheFile) {
  EXPECT_EQ(AskerOfFile("/venv/torch/lib/libc10_cuda.so"), Asker::kPyTorch);
  EXPECT_EQ(AskerOfFile("/venv/nvidia/nccl/lib/libnccl.so.2"), Asker::kCommunicator);
  EXPECT_EQ(AskerOfFile("libtorch_cuda.so"), Asker::kCommunicator);
  EXPECT_EQ(AskerOfFile("/usr/lib/libmpi.so.40"), Asker::kCommunicator);
  EXPECT_EQ(AskerOfFile("/usr/lib/libcublasLt.so.13"), Asker::kLibrary);
  EXPECT_EQ(AskerOfFile("/home/me/libnccl/solver"), Asker::kProgram);
  EXPECT_EQ(AskerOfFile(""), Asker::kProgram);
}

TEST(Asker, IsTheProgramWhereItAsksItself) {
  EXPECT_EQ(FindAsker(), Asker::kProgram);
}

}  // namespace
}  // namespace vramscope::probe::cuda
