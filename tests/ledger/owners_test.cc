// SPDX-License-Identifier: Apache-2.0
#include "resolve/attribute/owners.h"

#include <gtest/gtest.h>

#include "ledger/trace_builder.h"

namespace vramscope::resolve {
namespace {

using query::TraceBuilder;

const char* NameOf(const char* image) {
  return OwnerName(OwnerOfImage(image));
}

TEST(OwnerOfImageTest, KnowsTheLibraries) {
  EXPECT_STREQ(NameOf("/venv/lib/python3.12/site-packages/torch/lib/libc10_cuda.so"), "PyTorch");
  EXPECT_STREQ(NameOf("/x/nvidia/cublas/lib/libcublasLt.so.13"), "cuBLAS");
  EXPECT_STREQ(NameOf("libcudnn_engines_precompiled.so.9"), "cuDNN");
  EXPECT_STREQ(NameOf("/x/nvidia/nccl/lib/libnccl.so.2"), "NCCL");
  EXPECT_STREQ(NameOf("/x/site-packages/jax_plugins/xla_cuda12/xla_cuda_plugin.so"), "XLA");
  EXPECT_STREQ(NameOf("/x/site-packages/cupy_backends/cuda/api/driver.so"), "CuPy");
  EXPECT_STREQ(NameOf("/home/me/build/solver"), "application");
  EXPECT_STREQ(NameOf("/usr/bin/python3.12"), "application");
  EXPECT_STREQ(NameOf("/home/torch/solver"), "application");
  // Libraries that allocate on behalf of others. A static cudart is part of its library, so it has
  // no name here.
  EXPECT_STREQ(NameOf("/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04"), "");
  EXPECT_STREQ(NameOf("/x/torch/lib/libcudart-9335f6a2.so.12"), "");
  EXPECT_STREQ(NameOf("/opt/vramscope/libvramscope_probe.so"), "");
}

TEST(OwnersTest, TheFirstCallerOutsideTheDriverCounts) {
  TraceBuilder trace;
  const auto native = trace.Native({"/usr/bin/python3", "/x/libcudnn.so.9", "/x/libcublas.so.13",
                                    "/x/libcudart.so.13", "/x/libcuda.so.1"});
  const auto plumbing = trace.Native({"/x/libcuda.so.1"});
  Owners owners(trace);
  EXPECT_EQ(owners.Find(native, {}), Owner::kCublas);
  EXPECT_EQ(owners.Find(native, {}), Owner::kCublas);
  EXPECT_EQ(owners.Find(plumbing, {}), Owner::kUnknown);
  EXPECT_EQ(owners.Find({}, {}), Owner::kUnknown);
  EXPECT_EQ(owners.Find(tables::StackId{12345}, {}), Owner::kUnknown);
}

TEST(OwnersTest, ThePythonPackageNamesWhatCallsThroughTheInterpreter) {
  TraceBuilder trace;
  const auto native = trace.Native({"/usr/bin/python3", "/x/_ctypes.so", "/x/libffi.so.8"});
  const auto numba =
      trace.Python({{"/home/me/a.py", 1, "f"},
                    {"/v/lib/python3.12/site-packages/numba/cuda/driver.py", 2, "g"}});
  const auto user = trace.Python({{"/home/me/a.py", 1, "f"}});
  Owners owners(trace);
  EXPECT_EQ(owners.Find(native, numba), Owner::kNumba);
  EXPECT_EQ(owners.Find(native, user), Owner::kApplication);
  EXPECT_EQ(owners.Find({}, user), Owner::kUnknown);
}

}  // namespace
}  // namespace vramscope::resolve
