// SPDX-License-Identifier: Apache-2.0
#include "probe/stack/python/layout.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>

#include "probe/stack/python/walk.h"

namespace vramscope::probe {
namespace {

// The head of a _PyRuntime as 3.13 lays it out: cookie, version, free-threaded, then three words of
// the runtime, thirteen of the interpreter, nine of the thread, six of the frame, ten of the code.
std::array<uint64_t, 64> DebugOffsets(uint64_t version, uint64_t free_threaded) {
  std::array<uint64_t, 64> words{};
  std::memcpy(words.data(), "xdebugpy", 8);
  words[1] = version;
  words[2] = free_threaded;
  words[23] = 72;  // thread_state.current_frame
  const uint64_t frame[] = {80, 8, 0, 56, 72, 70};
  std::memcpy(&words[28], frame, sizeof frame);
  const uint64_t code[] = {208, 112, 120, 128, 136, 68, 52, 96, 104, 200};
  std::memcpy(&words[34], code, sizeof code);
  return words;
}

TEST(PythonLayout, TakesNewerOffsetsFromTheInterpreterItself) {
  const auto words = DebugOffsets(0x030d02f0, 0);
  PythonLayout layout{};
  ASSERT_TRUE(FindPythonLayout(0x030d02f0, words.data(), &layout));
  EXPECT_EQ(layout.tstate_frame, 72u);
  EXPECT_EQ(layout.cframe_frame, -1);
  EXPECT_EQ(layout.frame_previous, 8u);
  EXPECT_EQ(layout.frame_owner, 70);
  EXPECT_EQ(layout.frame_locals, 72u);
  EXPECT_EQ(layout.code_firstlineno, 68u);
  EXPECT_EQ(layout.code_argcount, 52u);
  EXPECT_EQ(layout.code_linetable, 136u);
  EXPECT_EQ(layout.code_instructions, 200u);
  EXPECT_EQ(layout.code_variables, 96u);
}

// As 3.14.10 has them: sixteen words of the interpreter, eight of the frame.
TEST(PythonLayout, TakesTheOffsetsOf314) {
  std::array<uint64_t, 64> words{};
  std::memcpy(words.data(), "xdebugpy", 8);
  words[1] = 0x030e0af0;
  const uint64_t thread[] = {832, 0, 8, 16, 72, 152, 160, 232, 32};
  std::memcpy(&words[22], thread, sizeof thread);
  const uint64_t frame[] = {88, 8, 0, 56, 80, 74, 64, 0};
  std::memcpy(&words[31], frame, sizeof frame);
  const uint64_t code[] = {216, 112, 120, 128, 136, 68, 52, 96, 104, 208};
  std::memcpy(&words[39], code, sizeof code);
  PythonLayout layout{};
  ASSERT_TRUE(FindPythonLayout(0x030e0af0, words.data(), &layout));
  EXPECT_EQ(layout.tstate_frame, 72u);
  EXPECT_EQ(layout.frame_previous, 8u);
  EXPECT_EQ(layout.frame_code, 0u);
  EXPECT_EQ(layout.frame_instruction, 56u);
  EXPECT_EQ(layout.frame_owner, 74);
  EXPECT_EQ(layout.code_qualname, 128u);
  EXPECT_EQ(layout.code_instructions, 208u);
}

TEST(PythonLayout, KnownOnesHaveAWalkOfTheirOwn) {
  std::set<PythonCapture> walks;
  for (const uint32_t version : {0x0309u, 0x030au, 0x030bu, 0x030cu, 0x030du}) {
    const auto words = DebugOffsets(version << 16, 0);
    PythonLayout layout{};
    ASSERT_TRUE(FindPythonLayout(version << 16, words.data(), &layout));
    EXPECT_TRUE(walks.insert(FindPythonCapture(layout)).second) << version;
  }
  PythonLayout other = kPython312;
  other.frame_locals += 8;
  EXPECT_TRUE(walks.insert(FindPythonCapture(other)).second);
}

TEST(PythonLayout, RefusesWhatItDoesNotKnow) {
  PythonLayout layout{};
  EXPECT_FALSE(FindPythonLayout(0x030800f0, nullptr, &layout)) << "too old";
  EXPECT_FALSE(FindPythonLayout(0x031000f0, nullptr, &layout)) << "too new";
  EXPECT_FALSE(FindPythonLayout(0x030d00f0, nullptr, &layout)) << "no table";
  const auto other = DebugOffsets(0x030d01f0, 0);
  EXPECT_FALSE(FindPythonLayout(0x030d02f0, other.data(), &layout)) << "another build's table";
  const auto free_threaded = DebugOffsets(0x030d02f0, 1);
  EXPECT_FALSE(FindPythonLayout(0x030d02f0, free_threaded.data(), &layout)) << "free-threaded";
}

TEST(PythonLayout, ReadsTheThreeWidthsOfStrings) {
  PythonLayout layout{};
  ASSERT_TRUE(FindPythonLayout(0x030c00f0, nullptr, &layout));
  alignas(8) char object[128] = {};
  const auto put = [&](int64_t length, uint32_t kind, bool ascii, const void* text, size_t bytes) {
    std::memcpy(object + kUnicodeLength, &length, sizeof length);
    const uint32_t state = (kind | 8u | (ascii ? 16u : 0u)) << layout.unicode_state_shift;
    std::memcpy(object + kUnicodeState, &state, sizeof state);
    std::memcpy(object + (ascii ? layout.unicode_ascii : layout.unicode_compact), text, bytes);
    char out[64];
    return std::string(out, CopyPythonString(layout, object, out, sizeof out));
  };
  EXPECT_EQ(put(8, 1, true, "train.py", 8), "train.py");
  EXPECT_EQ(put(2, 1, false, "\xe9t", 2), "\xc3\xa9t");
  const uint16_t wide[] = {0x4e2d, 'x'};
  EXPECT_EQ(put(2, 2, false, wide, sizeof wide), "\xe4\xb8\xadx");
  const uint32_t widest[] = {0x1f600};
  EXPECT_EQ(put(1, 4, false, widest, sizeof widest), "\xf0\x9f\x98\x80");
}

TEST(PythonWalk, InstructionOffsets) {
  PythonLayout layout{};
  ASSERT_TRUE(FindPythonLayout(0x030a00f0, nullptr, &layout));
  EXPECT_EQ(InstructionOffset(layout, {nullptr, 21, 0}), 42u)
      << "3.10 counts in units of two bytes";
  ASSERT_TRUE(FindPythonLayout(0x030c00f0, nullptr, &layout));
  const char code[256] = {};
  const auto at = reinterpret_cast<uintptr_t>(code) + layout.code_instructions;
  EXPECT_EQ(InstructionOffset(layout, {code, at + 14, 0}), 14u);
  EXPECT_EQ(InstructionOffset(layout, {code, at - 2, 0}), 0u) << "a frame that has not begun";
}

}  // namespace
}  // namespace vramscope::probe
