// SPDX-License-Identifier: Apache-2.0
#include "record/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace vramscope::cli {
namespace {

std::string Value(const Variables& variables, const std::string& name) {
  for (const auto& [key, value] : variables) {
    if (key == name)
      return value;
  }
  return "(not set)";
}

TEST(RecordingVariables, PutsTheProbeFirstAndOnlyOnce) {
  setenv("LD_PRELOAD", "/old/libvramscope_probe.so:/usr/lib/libtcmalloc.so /x.so", 1);
  const Variables variables = RecordingVariables("/lib/libvramscope_probe.so", "/d.vram.d", {});
  unsetenv("LD_PRELOAD");
  EXPECT_EQ(Value(variables, "LD_PRELOAD"),
            "/lib/libvramscope_probe.so:/usr/lib/libtcmalloc.so:/x.so");
  EXPECT_EQ(Value(variables, "VRAMSCOPE_DIR"), "/d.vram.d");
  EXPECT_EQ(Value(variables, "VRAMSCOPE_OPTIONS"), "");
  EXPECT_EQ(Value(variables, "PYTORCH_NO_CUDA_MEMORY_CACHING"), "(not set)");
}

TEST(RecordingVariables, KeepsTheAddressSanitizersOptions) {
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
  const Variables variables = RecordingVariables("/p.so", "/d", {});
  unsetenv("ASAN_OPTIONS");
  EXPECT_EQ(Value(variables, "ASAN_OPTIONS"), "detect_leaks=0:verify_asan_link_order=0");
}

TEST(RecordingVariables, NamesTheSession) {
  const Variables variables = RecordingVariables("/p.so", "/d", {.cpu = true, .session = "0a1b"});
  EXPECT_EQ(Value(variables, "VRAMSCOPE_OPTIONS"), "cpu,session=0a1b");
}

TEST(RecordingVariables, SwitchesCachesOff) {
  const Variables variables = RecordingVariables("/p.so", "/d", {.unpooled = true});
  EXPECT_EQ(Value(variables, "PYTORCH_NO_CUDA_MEMORY_CACHING"), "1");
  EXPECT_EQ(Value(variables, "XLA_PYTHON_CLIENT_ALLOCATOR"), "platform");
  EXPECT_EQ(Value(variables, "VRAMSCOPE_OPTIONS"), "unpooled");
}

TEST(RecordingVariables, LeavesAloneWhatTheUserHasSet) {
  setenv("XLA_PYTHON_CLIENT_ALLOCATOR", "vmm", 1);
  setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "", 1);
  const Variables variables = RecordingVariables("/p.so", "/d", {.unpooled = true});
  unsetenv("XLA_PYTHON_CLIENT_ALLOCATOR");
  unsetenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
  EXPECT_EQ(Value(variables, "XLA_PYTHON_CLIENT_ALLOCATOR"), "(not set)");
  EXPECT_EQ(Value(variables, "PYTORCH_NO_CUDA_MEMORY_CACHING"), "(not set)");
  EXPECT_EQ(Value(variables, "XLA_PYTHON_CLIENT_PREALLOCATE"), "false");
}

TEST(RecordingVariables, IsTheNvtxToolUnlessThereIsOne) {
  unsetenv("NVTX_INJECTION64_PATH");
  EXPECT_TRUE(NvtxIsOurs());
  EXPECT_EQ(Value(RecordingVariables("/p.so", "/d", {}), "NVTX_INJECTION64_PATH"), "/p.so");
  setenv("NVTX_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so", 1);
  EXPECT_FALSE(NvtxIsOurs());
  EXPECT_EQ(Value(RecordingVariables("/p.so", "/d", {}), "NVTX_INJECTION64_PATH"), "(not set)");
  // What an outer recording put there.
  setenv("NVTX_INJECTION64_PATH", "/old/libvramscope_probe.so", 1);
  EXPECT_EQ(Value(RecordingVariables("/p.so", "/d", {}), "NVTX_INJECTION64_PATH"), "/p.so");
  unsetenv("NVTX_INJECTION64_PATH");
}

TEST(RecordingVariables, IsTheKokkosToolUnlessThereIsOne) {
  unsetenv("KOKKOS_TOOLS_LIBS");
  unsetenv("KOKKOS_PROFILE_LIBRARY");
  EXPECT_EQ(Value(RecordingVariables("/p.so", "/d", {}), "KOKKOS_TOOLS_LIBS"), "/p.so");
  for (const char* const name : {"KOKKOS_TOOLS_LIBS", "KOKKOS_PROFILE_LIBRARY"}) {
    setenv(name, "/opt/kp_memory_events.so", 1);
    EXPECT_EQ(Value(RecordingVariables("/p.so", "/d", {}), "KOKKOS_TOOLS_LIBS"), "(not set)");
    unsetenv(name);
  }
}

TEST(AddXlaDump, AppendsToTheUsersFlags) {
  const auto flags = [](const char* users) { return AddXlaDump(users, "/a b/\"x\".vram.d/xla"); };
  EXPECT_EQ(flags("")->flags, "--xla_dump_to=\"/a b/\\\"x\\\".vram.d/xla\" --xla_dump_hlo_as_text");
  const auto added = flags("--xla_gpu_x=\"--xla_dump_to=/no\"");
  EXPECT_EQ(added->flags.find("--xla_gpu_x=\"--xla_dump_to=/no\" --xla_dump_to=\"/a b"), 0U);
  EXPECT_EQ(added->folder, "/a b/\"x\".vram.d/xla");
  EXPECT_FALSE(added->is_users);
}

TEST(AddXlaDump, KeepsTheUsersFolder) {
  for (const char* const users :
       {"--xla_dump_to=/tmp/dump", " --xla_dump_to=/x --v=1 --xla_dump_to='/tmp/dump'",
        "--xla_dump_to=\"/tmp/du\\mp\" --v"}) {
    const auto added = AddXlaDump(users, "/d.vram.d/xla");
    ASSERT_TRUE(added.ok());
    EXPECT_EQ(added->folder, "/tmp/dump") << users;
    EXPECT_TRUE(added->is_users);
    EXPECT_EQ(added->flags, std::string(users) + " --xla_dump_hlo_as_text");
  }
}

TEST(AddXlaDump, NeedsAFolder) {
  for (const char* const users :
       {"--xla_dump_to=-", "--xla_dump_to= --v", "--xla_dump_to=sponge", " /etc/flags"})
    EXPECT_FALSE(AddXlaDump(users, "/d.vram.d/xla").ok()) << users;
}

TEST(RecordingVariables, PassesTheFlagsOfXla) {
  EXPECT_EQ(Value(RecordingVariables("/p.so", "/d", {}), "XLA_FLAGS"), "(not set)");
  EXPECT_EQ(Value(RecordingVariables("/p.so", "/d", {.xla_flags = "--v"}), "XLA_FLAGS"), "--v");
}

TEST(OptionsText, ListsWhatIsOn) {
  EXPECT_EQ(OptionsText({}), "");
  EXPECT_EQ(OptionsText({.cpu = true, .native = true, .no_python = true, .paused = true}),
            "cpu,no-python,native,paused");
}

TEST(SuitsPreload, KnowsTheSeparators) {
  EXPECT_TRUE(SuitsPreload("/usr/lib/x.so"));
  EXPECT_FALSE(SuitsPreload("/My Files/x.so"));
  EXPECT_FALSE(SuitsPreload("/a:b/x.so"));
}

TEST(FindProbe, SaysThatTheNamedFileIsMissing) {
  setenv("VRAMSCOPE_PROBE", "/no/such/probe.so", 1);
  const util::Result<std::string> probe = FindProbe();
  unsetenv("VRAMSCOPE_PROBE");
  ASSERT_FALSE(probe.ok());
  EXPECT_NE(probe.status().message().find("/no/such/probe.so"), std::string::npos);
}

TEST(HasCudaDriver, IsFalseWhereNvmlSeesNoGpu) {
  EXPECT_FALSE(HasCudaDriver(0));
}

}  // namespace
}  // namespace vramscope::cli
