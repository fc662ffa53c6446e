// SPDX-License-Identifier: Apache-2.0
#include "trace/xla/peak_split.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "trace/xla/dump_folder.h"
#include "util/file.h"

namespace vramscope::trace {
namespace {

bool IsOwn(std::string_view file) {
  return file.find("/site-packages/") == std::string_view::npos;
}

std::string Sample(const std::string& name) {
  return *util::ReadFile(std::string(VRAMSCOPE_XLA_TESTDATA) + "/" + name, size_t{1} << 20);
}

struct Texts {
  std::string buffers, live_ranges, hlo;
};

Texts TrainStep() {
  return {Sample("train_step-buffer-assignment.txt"), Sample("train_step-live-range.txt"),
          Sample("train_step.txt")};
}

// Two values in place of each other, one after the other in its memory, one that outlives them.
Texts Small() {
  return {
      "BufferAssignment:\n"
      "allocation 0: size 4000, parameter 0, shape |f32[1000]| at ShapeIndex {}:\n"
      " value: <1 p @0> (size=4000,offset=0): f32[1000]{0}\n"
      "allocation 1: size 1000, preallocated-temp:\n"
      " value: <2 dot.1 @0> (size=600,offset=0): f32[150]{0}\n"
      " value: <3 fusion.2{0} @0> (size=600,offset=0): f32[150]{0}\n"
      " value: <4 fusion.2{1} @0> (size=100,offset=600): f32[25]{0}\n"
      " value: <5 copy.remat (phi) @0> (size=100,offset=700): f32[25]{0}\n"
      "allocation 2: size 50, color 1, preallocated-temp:\n"
      " value: <6 reduce @1> (size=50,offset=0): f32[12]{0}\n"
      "allocation 3: size 7000, color 5, preallocated-temp:\n"
      " value: <7 host @5> (size=7000,offset=0): f32[1750]{0}\n",
      "HloLiveRange (max 9):\n"
      "  InstructionSequence:\n"
      "    0:p\n"
      "  BufferLiveRange:\n"
      "    p{}:0-9\n"
      "    dot.1{}:1-3\n"
      "    fusion.2{0}:3-4\n"
      "    fusion.2{1}:3-4\n"
      "    copy.remat{}:2-6\n"
      "    reduce{}:3-3\n"
      "    host{}:0-9\n"
      "  Live ranges at 3 (peak):\n",
      "HloModule jit_step, is_scheduled=true\n\n"
      "%fused (a: f32[150]) -> (f32[150], f32[25]) {\n"
      "  %a = f32[150]{0} parameter(0)\n"
      "  %s = f32[150]{0} subtract(%a, %a), metadata={op_name=\"jit(step)/sub\" "
      "source_file=\"/me/a.py\" source_line=3}\n"
      "  %e = f32[25]{0} exponential(%s), metadata={op_type=\"exp\" "
      "op_name=\"jit(step)/exp;jit/b\" "
      "source_file=\"/me/a \\\"b\\\".py\" source_line=4}\n"
      "  ROOT %t = (f32[150]{0}, f32[25]{0}) tuple(%s, %e)\n"
      "}\n\n"
      "ENTRY %main (p: f32[1000]) -> f32[12] {\n"
      "  %p = f32[1000]{0} parameter(0)\n"
      "  %fusion.2 = (f32[150]{0}, f32[25]{0:T(8,128)}) fusion(%dot.1), kind=kLoop, calls=%fused\n"
      "  %copy.remat = f32[25]{0} copy(%p), metadata={op_name=\"jit(step)/copy\"}\n"
      "}\n"};
}

util::Result<XlaPeak> Split(const Texts& texts) {
  return SplitXlaPeak({texts.buffers, texts.live_ranges, texts.hlo}, IsOwn);
}

std::map<std::string, XlaOperation> ByName(const XlaPeak& peak) {
  std::map<std::string, XlaOperation> found;
  for (const XlaOperation& operation : peak.operations)
    found[operation.instruction] = operation;
  return found;
}

uint64_t SumOf(const XlaPeak& peak) {
  uint64_t sum = 0;
  for (const XlaOperation& operation : peak.operations)
    sum += operation.bytes;
  return sum;
}

TEST(XlaPeak, SplitsAProgramOfJax) {
  const auto peak = Split(TrainStep());
  ASSERT_TRUE(peak.ok()) << peak.status().message();
  EXPECT_EQ(peak->temp_bytes, 589824U);
  EXPECT_EQ(SumOf(*peak), 589824U);
  auto found = ByName(*peak);
  ASSERT_EQ(found.size(), 9U);
  const XlaOperation& again = found["wrapped_tanh"];
  EXPECT_EQ(again.bytes, 65536U);
  EXPECT_EQ(again.hlo.op_name,
            "jit(train_step)/transpose(jvp(jvp()))/checkpoint/rematted_computation/tanh");
  EXPECT_TRUE(again.hlo.rematerialized);
  EXPECT_EQ(again.hlo.fused, 1U);
  EXPECT_EQ(again.hlo.place.file, "/home/me/layers.py");
  EXPECT_EQ(again.hlo.place.function, "dense");
  EXPECT_EQ(again.hlo.place.line, 6U);
  EXPECT_FALSE(found["wrapped_tanh.2"].hlo.rematerialized);
  EXPECT_EQ(found["multiply_add_fusion.5"].hlo.fused, 8U);
}

TEST(XlaPeak, CountsSharedMemoryOnce) {
  const auto peak = Split(Small());
  ASSERT_TRUE(peak.ok()) << peak.status().message();
  EXPECT_EQ(peak->temp_bytes, 1050U);  // without the host's
  auto found = ByName(*peak);
  EXPECT_EQ(found.count("dot.1"), 0U);  // fusion.2 continues in its memory
  EXPECT_EQ(found["fusion.2"].bytes, 700U);
  EXPECT_EQ(found["copy.remat"].bytes, 100U);
  EXPECT_EQ(found["reduce"].bytes, 50U);
  EXPECT_EQ(SumOf(*peak), 850U);
  EXPECT_EQ(peak->operations[0].instruction, "fusion.2");
}

TEST(XlaPeak, ReadsTheMetadataOfOlderVersions) {
  const auto peak = Split(Small());
  ASSERT_TRUE(peak.ok());
  auto found = ByName(*peak);
  const HloInstruction& fusion = found["fusion.2"].hlo;
  EXPECT_EQ(fusion.op_name, "jit(step)/exp");  // of its last operation
  EXPECT_EQ(fusion.place.file, "/me/a \"b\".py");
  EXPECT_EQ(fusion.place.line, 4U);
  EXPECT_EQ(fusion.fused, 2U);
  EXPECT_FALSE(fusion.rematerialized);
  EXPECT_TRUE(found["copy.remat"].hlo.rematerialized);
  EXPECT_EQ(found["reduce"].hlo.op_name, "");
}

TEST(XlaPeak, NamesTheInnermostFrameOutsideOfLibraries) {
  Texts texts = Small();
  const std::string tables =
      "FileNames\n1 \"/me/train.py\"\n2 \"/v/site-packages/flax/linen.py\"\n\n"
      "FunctionNames\n1 \"step\"\n2 \"Dense.__call__\"\n\n"
      "FileLocations\n1 {file_name_id=1 function_name_id=1 line=7}\n"
      "2 {file_name_id=2 function_name_id=2 line=70}\n\n";
  const std::string_view module = "is_scheduled=true\n\n";
  const size_t at = texts.hlo.find(module) + module.size();
  const std::string copy = "metadata={op_name=\"jit(step)/copy\"";
  for (const char* const frames :
       {"1 {file_location_id=1 parent_frame_id=1}\n2 {file_location_id=2 parent_frame_id=2}\n",
        "1 {file_location_id=1}\n2 {file_location_id=2 parent_frame_id=1}\n"}) {
    std::string hlo = texts.hlo;
    hlo.insert(at, tables + "StackFrames\n" + frames + "\n\n");
    hlo.replace(hlo.find(copy), copy.size(), copy + " stack_frame_id=2");
    const auto peak = Split({texts.buffers, texts.live_ranges, hlo});
    ASSERT_TRUE(peak.ok()) << peak.status().message();
    const HloPlace place = ByName(*peak)["copy.remat"].hlo.place;
    EXPECT_EQ(place.file, "/me/train.py") << frames;
    EXPECT_EQ(place.function, "step");
    EXPECT_EQ(place.line, 7U);
  }
}

TEST(XlaPeak, DamageIsAnError) {
  const auto fails = [](Texts texts, const char* message) {
    const auto peak = Split(texts);
    ASSERT_FALSE(peak.ok()) << message;
    EXPECT_NE(peak.status().message().find(message), std::string::npos) << peak.status().message();
  };
  Texts texts = Small();
  texts.hlo.resize(texts.hlo.size() - 2);
  fails(texts, "HLO is cut off");
  texts = Small();
  texts.live_ranges = "";
  fails(texts, "live ranges are missing");
  texts = Small();
  texts.buffers =
      "\x7f"
      "ELF\n";
  fails(texts, "buffer assignment is none");
  for (const auto& [from, to] :
       std::map<std::string, std::string>{{"size=600", "size=1001"},
                                          {"offset=700", "offset=18446744073709551615"},
                                          {"size 1000", "size 18446744073709551615"},
                                          {"size 50, ", "size 18446744073709551615, "},
                                          {"size=100,offset=600", "size=,offset=600"}}) {
    texts = Small();
    texts.buffers.replace(texts.buffers.find(from), from.size(), to);
    fails(texts, "buffer assignment is damaged");
  }
}

TEST(XlaPeak, HalfOfEachTextIsNoCrash) {
  const Texts whole = TrainStep();
  for (size_t i = 0; i < 64; ++i) {
    Texts texts = whole;
    for (std::string* const text : {&texts.buffers, &texts.live_ranges, &texts.hlo}) {
      text->resize(text->size() * i / 64);
      const auto peak = Split(texts);
      EXPECT_LE(peak.ok() ? SumOf(*peak) : 0, peak.ok() ? peak->temp_bytes : 0);
    }
  }
}

class DumpFolder : public ::testing::Test {
 protected:
  DumpFolder() { (void)!mkdtemp(path_.data()); }
  ~DumpFolder() override { std::filesystem::remove_all(path_); }

  void Write(const std::string& stem, const Texts& texts) const {
    for (const auto& [end, text] :
         {std::pair("-buffer-assignment.txt", texts.buffers),
          std::pair("-live-range.txt", texts.live_ranges), std::pair(".txt", texts.hlo)})
      std::ofstream(path_ + "/" + stem + end) << text;
  }
  util::Result<XlaDumpFolder::Found> Find(const std::string& program,
                                          uint64_t bytes,
                                          int64_t since_ns = 0) const {
    return XlaDumpFolder(path_, since_ns, IsOwn).Find(program, bytes);
  }

  std::string path_ = ::testing::TempDir() + "/xla_dumps_XXXXXX";
};

TEST_F(DumpFolder, FindsAProgramByNameAndBytes) {
  Write("module_0001.jit_step.sm_9.0_gpu_after_optimizations", Small());
  Write("module_0006.jit_train_step.cpu_after_optimizations", TrainStep());
  const auto found = Find("jit_step", 1050);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->peak.temp_bytes, 1050U);
  EXPECT_TRUE(Find("jit_train_step", 589824).ok());
  // XLA's allocator may give it a quarter more.
  EXPECT_TRUE(Find("jit_train_step", 600000).ok());
  EXPECT_TRUE(Find("jit_train_step", 0).ok());
  for (const uint64_t other : {uint64_t{589823}, uint64_t{800000}})
    EXPECT_FALSE(Find("jit_train_step", other).ok()) << other;
  EXPECT_FALSE(Find("jit_train", 589824).ok());
}

TEST_F(DumpFolder, LeavesAloneWhatIsNoDumpOfTheRun) {
  const std::string stem = "module_0001.jit_step.cpu_after_optimizations";
  Write(stem, Small());
  EXPECT_TRUE(Find("jit_step", 1050).ok());
  // Another module's text, or of an older run.
  Texts other = Small();
  other.hlo.replace(other.hlo.find("jit_step"), 8, "jit_spet");
  Write(stem, other);
  EXPECT_FALSE(Find("jit_step", 1050).ok());
  Write(stem, Small());
  EXPECT_FALSE(Find("jit_step", 1050, int64_t{1} << 62).ok());
  // Links and pipes.
  const std::string ranges = path_ + "/" + stem + "-live-range.txt";
  std::filesystem::rename(ranges, path_ + "/elsewhere");
  std::filesystem::create_symlink("elsewhere", ranges);
  EXPECT_FALSE(Find("jit_step", 1050).ok());
  std::filesystem::remove(ranges);
  ASSERT_EQ(mkfifo(ranges.c_str(), 0600), 0);
  EXPECT_FALSE(Find("jit_step", 1050).ok());
  EXPECT_FALSE(XlaDumpFolder("/no/such/folder", 0, IsOwn).Find("jit_step", 1050).ok());
}

}  // namespace
}  // namespace vramscope::trace
