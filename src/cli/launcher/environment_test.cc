// SPDX-License-Identifier: Apache-2.0
#include "cli/launcher/environment.h"

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

TEST(RecordingVariables, SwitchesCachesOff) {
  const Variables variables = RecordingVariables("/p.so", "/d", {.unpooled = true});
  EXPECT_EQ(Value(variables, "PYTORCH_NO_CUDA_MEMORY_CACHING"), "1");
  EXPECT_EQ(Value(variables, "VRAMSCOPE_OPTIONS"), "unpooled");
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
