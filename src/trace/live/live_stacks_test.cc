// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "trace/testing/live_trace_fixture.h"
#include "util/owned_file.h"

namespace vramscope::trace {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::LiveFileBuilder;
using ::testing::StartsWith;

TEST_F(LiveTraceTest, ReadsEventsWithNamesStacksAndThreads) {
  LiveFileBuilder file;
  auto& main = file.Stream(1);
  main.Thread(4711, "MainThread");
  const uint64_t outer = main.PyFrame(0, "train.py", "<module>", 10);
  const uint64_t inner = main.PyFrame(outer, "model.py", "Net.forward", 42);
  main.Add(CpuAlloc(100, 0x1000, 512, inner));
  main.Add(CpuFree(200, 0x1000));
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  auto trace = Open();
  ASSERT_NE(trace, nullptr);

  const auto events = Events(*trace);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_TRUE(events[0].Is<BlockAlloc>());
  EXPECT_EQ(events[0].time_ns, static_cast<int64_t>(kStart + 100));
  EXPECT_EQ(events[0].As<BlockAlloc>().address, 0x1000u);
  EXPECT_EQ(events[0].As<BlockAlloc>().size, 512u);
  EXPECT_TRUE(events[1].Is<BlockFree>());
  EXPECT_TRUE(events[2].Is<ProcessExit>());

  ASSERT_EQ(trace->devices().size(), 1u);
  EXPECT_EQ(trace->devices()[0].kind, tables::DeviceKind::kCpu);
  EXPECT_EQ(trace->devices()[0].index, -1);
  EXPECT_EQ(events[0].As<BlockAlloc>().device, DeviceId{0});
  EXPECT_EQ(trace->threads()[events[0].thread.value].tid, 4711u);
  EXPECT_EQ(trace->threads()[events[0].thread.value].name, "MainThread");
  EXPECT_EQ(trace->processes()[0].command, "python train.py");
  EXPECT_EQ(trace->session().event_count, 3u);
  EXPECT_EQ(trace->session().start_ns, static_cast<int64_t>(kStart));

  const tables::StackRow& top = trace->stack(events[0].As<BlockAlloc>().stack);
  EXPECT_EQ(trace->string(trace->frame(top.frame).function), "Net.forward");
  EXPECT_EQ(trace->string(trace->frame(top.frame).file), "model.py");
  EXPECT_EQ(trace->frame(top.frame).line, 42u);
  const tables::StackRow& caller = trace->stack(top.parent);
  EXPECT_EQ(trace->string(trace->frame(caller.frame).function), "<module>");
  EXPECT_EQ(caller.parent, StackId{});
  EXPECT_TRUE(trace->losses().empty());
}

TEST_F(LiveTraceTest, NamesNativeFrames) {
  LiveFileBuilder file({.executable = fs::read_symlink("/proc/self/exe")});
  auto& main = file.Stream(1);
  auto& other = file.Stream(2);
  Dl_info info{};
  const auto function = reinterpret_cast<uint64_t>(dlsym(RTLD_DEFAULT, "strtol"));
  ASSERT_NE(dladdr(reinterpret_cast<void*>(function), &info), 0);
  const auto bias = reinterpret_cast<uint64_t>(info.dli_fbase);
  const std::string_view path = info.dli_fname;
  main.Add(format::NativeStack{.id = 1, .parent = 0, .pc = 0x10});
  main.Add(format::NativeStack{.id = 2, .parent = 1, .pc = function + 1});
  main.Add(format::Alloc{.begin = kStart, .end = kStart + 5, .address = 1, .size = 1, .native = 2});
  // Another thread describes the binary.
  other.Add(format::Image{
      .begin = bias, .end = bias + (1u << 22), .bias = bias, .path = {path.data(), path.size()}});
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  WriteSession();
  auto trace = Open();
  const auto allocs = OfKind<Alloc>(Events(*trace));
  const tables::StackRow& top = trace->stack(allocs[0].As<Alloc>().native);
  const tables::FrameRow& frame = trace->frame(top.frame);
  EXPECT_EQ(frame.kind, tables::FrameKind::kNative);
  EXPECT_THAT(std::string(trace->string(frame.function)), HasSubstr("strto"));
  EXPECT_EQ(trace->string(frame.image), path);
  EXPECT_EQ(frame.pc, function + 1);
  EXPECT_EQ(trace->string(trace->frame(trace->stack(top.parent).frame).function), "0x10");

  // Without native names: the binary is recorded and is not opened.
  auto quick = OpenTrace(directory_, {.native_names = false});
  ASSERT_TRUE(quick.ok());
  const auto again = OfKind<Alloc>(Events(**quick));
  const tables::FrameRow& nameless =
      (*quick)->frame((*quick)->stack(again[0].As<Alloc>().native).frame);
  EXPECT_THAT(std::string((*quick)->string(nameless.function)), StartsWith("0x"));
  EXPECT_EQ((*quick)->string(nameless.image), path);
}

// The sender of a directory chooses the names in it: local files of these names must not be read.
TEST_F(LiveTraceTest, FilesThatAForeignRecordingNamesAreNotRead) {
  WriteBytes("secret.txt", "the first line\nthe second line\n");
  LiveFileBuilder file;
  auto& main = file.Stream(1);
  const uint64_t stack = main.PyFrame(0, Path("secret.txt"), "f", 2);
  main.Add(CpuAlloc(1, 0x1000, 1, stack));
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  const auto line = [&](const fs::path& directory) {
    auto trace = OpenTrace(directory);
    EXPECT_TRUE(trace.ok());
    const auto allocs = OfKind<BlockAlloc>(Events(**trace));
    const tables::FrameRow& frame =
        (*trace)->frame((*trace)->stack(allocs[0].As<BlockAlloc>().stack).frame);
    EXPECT_EQ((*trace)->string(frame.file), Path("secret.txt"));
    return std::string((*trace)->SourceLine(frame.file, 2));
  };
  EXPECT_EQ(line(directory_), "") << "no session file";
  WriteSession();
  EXPECT_EQ(line(directory_), "the second line");
  // Sent, and unpacked here: the same owner, the same host's name, another directory.
  const fs::path copy = Path("copy");
  fs::create_directory(copy);
  for (const char* name : {"1.vrl", "session.json"})
    fs::copy_file(Path(name), copy / name);
  EXPECT_EQ(line(copy), "");
  const auto copied = OpenTrace(copy);
  EXPECT_THAT((*copied)->session().notes,
              ::testing::Contains(::testing::Pair(
                  "function names and source lines",
                  "not looked up: it was copied, or not recorded by vramscope run")));
  WriteBytes("session.json", "{\"host\": \"elsewhere\", \"directory\": \"" +
                                 util::OwnedDirectory::Open(directory_)->Identity() + "\"}");
  EXPECT_EQ(line(directory_), "") << "another machine";
  if (geteuid() == 0) {
    WriteSession();
    ASSERT_EQ(chown(Path("1.vrl").c_str(), 65534, 65534), 0);
    EXPECT_EQ(line(directory_), "") << "another user's file";
  }
}

}  // namespace
}  // namespace vramscope::trace
