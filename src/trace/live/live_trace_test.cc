// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/coding.h"
#include "trace/testing/live_file_builder.h"
#include "trace/trace.h"
#include "util/owned_file.h"

namespace vramscope::trace {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::LiveFileBuilder;
using ::testing::StartsWith;

constexpr uint64_t kStart = 1'000'000'000;

class LiveTraceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / ("vramscope_live_test_" + std::to_string(getpid()));
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ / name; }
  void WriteBytes(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  // What makes it a recording of this user's on this machine.
  void WriteSession() const {
    char host[256] = {};
    ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
    WriteBytes("session.json", "{\"version\": \"1\", \"host\": \"" + std::string(host) +
                                   "\", \"directory\": \"" +
                                   util::OwnedDirectory::Open(directory_)->Identity() + "\"}");
  }
  std::unique_ptr<Trace> Open() const {
    auto trace = OpenTrace(directory_);
    EXPECT_TRUE(trace.ok()) << trace.status().message();
    return trace.ok() ? std::move(*trace) : nullptr;
  }
  static std::vector<Event> Events(Trace& trace) {
    std::vector<Event> events;
    const auto status = trace.ForEachEvent([&](std::span<const Event> batch) {
      events.insert(events.end(), batch.begin(), batch.end());
    });
    EXPECT_TRUE(status.ok()) << status.message();
    for (size_t i = 1; i < events.size(); ++i)
      EXPECT_GE(events[i].time_ns, events[i - 1].time_ns);
    return events;
  }
  template <class Record>
  static std::vector<Event> OfKind(const std::vector<Event>& events) {
    std::vector<Event> found;
    for (const Event& event : events) {
      if (event.Is<Record>())
        found.push_back(event);
    }
    return found;
  }
  static uint64_t LossCount(const Trace& trace, format::Loss loss) {
    for (const Loss& row : trace.losses()) {
      if (row.name == format::LossName(static_cast<uint64_t>(loss)))
        return row.count;
    }
    return 0;
  }

  fs::path directory_;
};

format::BlockAlloc CpuAlloc(uint64_t time, uint64_t address, uint64_t size, uint64_t stack = 0) {
  return {.time = kStart + time, .address = address, .size = size, .device = -1, .stack = stack};
}
format::BlockFree CpuFree(uint64_t time, uint64_t address) {
  return {.time = kStart + time, .address = address, .size = 0, .device = -1};
}

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

TEST_F(LiveTraceTest, ReadsScopesUpToTheEndOfTheirChunk) {
  LiveFileBuilder file;
  auto& main = file.Stream(1);
  main.Add(CpuAlloc(100, 0x1000, 512));
  const uint64_t train = main.String("train");
  const uint64_t step = main.String("step");
  main.Add(format::Scope{.id = 90, .parent = 0, .name = train});
  main.Add(format::Scope{.id = 91, .parent = 90, .name = step});
  main.Add(format::ScopeIs{.scope = 91});
  main.Add(CpuAlloc(200, 0x2000, 512));
  main.Add(format::ScopeIs{.scope = 90});
  main.Add(CpuAlloc(300, 0x3000, 512));
  main.Add(format::ScopeIs{.scope = 0});
  main.Add(CpuAlloc(400, 0x4000, 512));
  main.Add(format::ScopeIs{.scope = 91});
  main.Seal();
  main.Add(CpuAlloc(500, 0x5000, 512));
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  auto trace = Open();
  ASSERT_NE(trace, nullptr);
  std::vector<std::string> scopes;
  for (const Event& event : OfKind<BlockAlloc>(Events(*trace)))
    scopes.emplace_back(trace->string(event.scope));
  EXPECT_THAT(scopes, ::testing::ElementsAre("", "train/step", "train", "", ""));
}

TEST_F(LiveTraceTest, ReadsNamesAndAutogradNumbers) {
  LiveFileBuilder file;
  auto& main = file.Stream(1);
  const uint64_t code = main.PyCode("module.py", "Module._wrapped_call_impl", 1);
  main.Add(format::PyStack{.id = 70, .parent = 0, .code = code, .instruction = 0, .object = 0xabc});
  format::BlockAlloc alloc = CpuAlloc(100, 0x1000, 512, 70);
  alloc.sequence = 2 * 8 + 1;
  main.Add(alloc);
  alloc = CpuAlloc(200, 0x2000, 512);
  alloc.sequence = 2 * 7 + 2;
  main.Add(alloc);
  const uint64_t path = main.String("h.0.fc");
  const uint64_t type = main.String("Linear");
  const uint64_t slot = main.String("exp_avg");
  main.Add(format::Module{
      .time = kStart + 300, .object = 0xabc, .root = 0xdef, .path = path, .type = type});
  main.Add(format::Name{.time = kStart + 400,
                        .address = 0x1000,
                        .size = 500,
                        .device = -1,
                        .kind = static_cast<uint64_t>(format::NameKind::kOptimizerState),
                        .owner = 0xdef,
                        .name = path,
                        .detail = slot});
  main.Add(format::Step{.time = kStart + 500, .kind = 1, .optimizer = 0x99, .name = type});
  main.Add(format::ModuleGone{.time = kStart + 600, .object = 0xabc});
  main.Add(format::PoolBlock{.time = kStart + 700,
                             .address = 0x3000,
                             .size = 4096,
                             .requested = 3000,
                             .device = -1,
                             .name = slot});
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  auto trace = Open();
  ASSERT_NE(trace, nullptr);
  const auto events = Events(*trace);
  ASSERT_EQ(events.size(), 8u);
  EXPECT_EQ(trace->dictionaries().object(events[0].As<BlockAlloc>().stack), 0xabcu);
  const auto next = AutogradNode::Of(events[0].As<BlockAlloc>().sequence);
  EXPECT_EQ(next.number, 8u);
  EXPECT_EQ(next.kind, AutogradNode::Kind::kForward);
  const auto evaluated = AutogradNode::Of(events[1].As<BlockAlloc>().sequence);
  EXPECT_EQ(evaluated.number, 7u);
  EXPECT_EQ(evaluated.kind, AutogradNode::Kind::kBackward);
  EXPECT_TRUE(events[2].Is<Module>());
  const auto& module = events[2].As<Module>();
  EXPECT_EQ(module.object, 0xabcu);
  EXPECT_EQ(module.root, 0xdefu);
  EXPECT_EQ(trace->string(module.path), "h.0.fc");
  EXPECT_EQ(trace->string(module.type), "Linear");
  EXPECT_TRUE(events[3].Is<Name>());
  const auto& name = events[3].As<Name>();
  EXPECT_EQ(name.size, 500u);
  EXPECT_EQ(name.device, DeviceId{0});
  EXPECT_EQ(name.kind, format::NameKind::kOptimizerState);
  EXPECT_EQ(trace->string(name.name), "h.0.fc");
  EXPECT_EQ(trace->string(name.detail), "exp_avg");
  EXPECT_TRUE(events[4].Is<Step>());
  EXPECT_EQ(events[4].As<Step>().kind, format::StepKind::kEnd);
  EXPECT_TRUE(events[5].Is<ModuleGone>());
  EXPECT_TRUE(events[6].Is<PoolBlock>());
  EXPECT_EQ(events[6].As<PoolBlock>().requested, 3000u);
  EXPECT_EQ(trace->string(events[6].As<PoolBlock>().name), "exp_avg");
}

TEST_F(LiveTraceTest, CanBeStreamedTwice) {
  LiveFileBuilder file;
  auto& main = file.Stream(1);
  for (uint64_t i = 0; i < 3000; ++i) {
    const uint64_t stack = main.PyFrame(0, "a.py", "f", 1 + i % 50);
    main.Add(CpuAlloc(i * 10, 0x1000 + i * 64, i, stack));
    if (i % 100 == 0) {
      const std::string name = "mark " + std::to_string(i);
      main.Add(format::Mark{.time = kStart + i * 10, .name = {name.data(), name.size()}});
    }
  }
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  auto trace = Open();
  const auto first = Events(*trace);
  const auto second = Events(*trace);
  ASSERT_EQ(first.size(), 3031u);
  ASSERT_EQ(second.size(), first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].time_ns, second[i].time_ns);
    ASSERT_EQ(first[i].type, second[i].type);
    if (first[i].Is<BlockAlloc>())
      EXPECT_EQ(first[i].As<BlockAlloc>().stack, second[i].As<BlockAlloc>().stack);
    if (first[i].Is<Mark>())
      EXPECT_EQ(first[i].As<Mark>().name, second[i].As<Mark>().name);
  }
  // 50 different lines, whichever stream ids they had.
  EXPECT_EQ(trace->dictionaries().stack_count(), 51u);
  EXPECT_EQ(trace->string(OfKind<Mark>(first)[29].As<Mark>().name), "mark 2900");
}

TEST_F(LiveTraceTest, MergesStreamsAndProcessesByTime) {
  for (uint32_t process = 0; process < 2; ++process) {
    LiveFileBuilder file({.pid = 100 + process});
    for (uint32_t stream = 1; stream <= 3; ++stream) {
      auto& out = file.Stream(stream);
      out.Thread(process * 10 + stream, "t");
      for (uint64_t i = 0; i < 1000; ++i) {
        out.Add(CpuAlloc(i * 60 + stream * 10 + process * 30, (stream << 24) + i * 64, 1));
      }
    }
    ASSERT_TRUE(file.Write(Path(std::to_string(process) + ".vrl")));
  }
  auto trace = Open();
  const auto events = Events(*trace);
  EXPECT_EQ(OfKind<BlockAlloc>(events).size(), 6000u);
  EXPECT_EQ(OfKind<ProcessExit>(events).size(), 2u);
  EXPECT_EQ(trace->processes().size(), 2u);
  EXPECT_EQ(trace->threads().size(), 7u);
}

TEST_F(LiveTraceTest, PutsFreesAtTheirBegin) {
  LiveFileBuilder file;
  auto& main = file.Stream(1);
  const uint64_t api = main.String("cuMemAlloc_v2");
  main.Add(format::Alloc{.begin = kStart + 10,
                         .end = kStart + 20,
                         .api = api,
                         .device = 0,
                         .address = 0xa,
                         .size = 1});
  // A free takes long; inside it the probe reads the free memory and writes that first.
  main.Add(format::Reading{
      .begin = kStart + 40, .end = kStart + 45, .device = 0, .free = 5, .total = 9});
  main.Add(format::Free{.begin = kStart + 30, .end = kStart + 90, .api = api, .address = 0xa});
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  const auto events = Events(*Open());
  ASSERT_EQ(events.size(), 4u);
  EXPECT_TRUE(events[0].Is<Alloc>());
  EXPECT_EQ(events[0].time_ns, events[0].end_ns);
  EXPECT_TRUE(events[1].Is<Free>());
  EXPECT_EQ(events[1].time_ns, events[1].begin_ns);
  EXPECT_EQ(events[1].end_ns, static_cast<int64_t>(kStart + 90));
  EXPECT_TRUE(events[2].Is<Reading>());
}

TEST_F(LiveTraceTest, RestoresAlternationBetweenThreads) {
  LiveFileBuilder file;
  auto& one = file.Stream(1);
  one.Thread(1, "one");
  auto& two = file.Stream(2);
  two.Thread(2, "two");
  one.Add(CpuAlloc(100, 0x1000, 7));
  two.Add(CpuAlloc(500, 0x1000, 8));  // before its predecessor's free, by the clock
  one.Add(CpuFree(600, 0x1000));
  two.Add(CpuFree(2000, 0x2000));  // and a free before its allocation
  one.Add(CpuAlloc(2000, 0x2000, 9));
  two.Add(CpuFree(90000, 0x3000));  // never allocated: history, not skew
  one.Add(CpuAlloc(99000, 0x3000, 9));
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  const auto events = Events(*Open());
  std::vector<std::pair<bool, uint64_t>> order;  // whether it is an allocation, and where
  for (const Event& event : events) {
    if (event.Is<BlockAlloc>())
      order.emplace_back(true, event.As<BlockAlloc>().address);
    else if (event.Is<BlockFree>())
      order.emplace_back(false, event.As<BlockFree>().address);
  }
  EXPECT_EQ(order, (std::vector<std::pair<bool, uint64_t>>{{true, 0x1000},
                                                           {false, 0x1000},
                                                           {true, 0x1000},
                                                           {true, 0x2000},
                                                           {false, 0x2000},
                                                           {false, 0x3000},
                                                           {true, 0x3000}}));
}

TEST_F(LiveTraceTest, JoinsDevicesByUuidAndSamplesByPid) {
  LiveFileBuilder launcher(
      {.pid = 50, .start_ns = kStart - 1000, .writer = format::WriterKind::kLauncher});
  auto& samples = launcher.Stream(1);
  const auto device = [](int64_t index, std::string_view uuid, std::string_view name) {
    return format::Device{.device = index,
                          .total_bytes = 80,
                          .uuid = {uuid.data(), uuid.size()},
                          .name = {name.data(), name.size()}};
  };
  samples.Add(device(0, "GPU-aaaa", "A"));
  samples.Add(device(1, "GPU-bbbb", "B"));
  samples.Add(format::DeviceSample{.begin = kStart + 5,
                                   .end = kStart + 6,
                                   .device = 1,
                                   .used = 30,
                                   .free = 50,
                                   .reserved = 2,
                                   .total = 80});
  samples.Add(format::ProcessSample{
      .begin = kStart + 50, .end = kStart + 51, .device = 1, .pid = 100, .used = 25});
  samples.Add(format::ProcessSample{
      .begin = kStart + 52, .end = kStart + 53, .device = 1, .pid = 9999, .used = 3});
  samples.Add(format::ProcessExit{.time = kStart + 900, .pid = 100, .status = 9});
  ASSERT_TRUE(launcher.Write(Path("launcher.vrl")));
  LiveFileBuilder file;
  auto& main = file.Stream(1);
  main.Add(device(0, "GPU-bbbb", "B"));  // CUDA_VISIBLE_DEVICES=1
  main.Add(format::BlockAlloc{.time = kStart + 10, .address = 1, .size = 2, .device = 0});
  main.Add(format::Alloc{
      .begin = kStart + 11, .end = kStart + 12, .device = -2, .address = 3, .size = 4});
  ASSERT_TRUE(file.Write(Path("100.vrl")));

  auto trace = Open();
  ASSERT_EQ(trace->devices().size(), 3u);
  EXPECT_EQ(trace->devices()[0].uuid, "GPU-aaaa");
  EXPECT_EQ(trace->devices()[1].uuid, "GPU-bbbb");
  EXPECT_EQ(trace->devices()[1].index, 1);
  EXPECT_EQ(trace->devices()[1].total_bytes, 80u);
  EXPECT_EQ(trace->devices()[2].kind, tables::DeviceKind::kHost);
  const auto events = Events(*trace);
  EXPECT_EQ(OfKind<BlockAlloc>(events)[0].As<BlockAlloc>().device, DeviceId{1});
  EXPECT_EQ(OfKind<Alloc>(events)[0].As<Alloc>().device, DeviceId{2});
  EXPECT_EQ(OfKind<DeviceSample>(events)[0].As<DeviceSample>().device, DeviceId{1});
  EXPECT_EQ(OfKind<DeviceSample>(events)[0].process, kNoProcess);
  const auto process_samples = OfKind<ProcessSample>(events);
  EXPECT_EQ(process_samples[0].process, ProcessId{0});
  EXPECT_EQ(process_samples[1].process, kNoProcess);
  EXPECT_EQ(process_samples[1].As<ProcessSample>().pid, 9999u);
  const auto ends = OfKind<ProcessExit>(events);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].time_ns, static_cast<int64_t>(kStart + 900));
  EXPECT_EQ(ends[0].As<ProcessExit>().status, 9u);
  EXPECT_EQ(trace->processes()[0].wait_status, 9);
  EXPECT_EQ(trace->processes()[0].end_ns, static_cast<int64_t>(kStart + 12));
}

TEST_F(LiveTraceTest, AProcessThatNvmlListsHasNotEnded) {
  LiveFileBuilder launcher({.writer = format::WriterKind::kLauncher});
  for (const uint64_t at : {500u, 800u}) {
    launcher.Stream(1).Add(format::ProcessSample{
        .begin = kStart + at, .end = kStart + at + 1, .pid = 7, .used = 800 - at});
  }
  ASSERT_TRUE(launcher.Write(Path("launcher.vrl")));
  LiveFileBuilder file({.pid = 7});
  file.Stream(1).Add(CpuAlloc(100, 0x1000, 1));
  ASSERT_TRUE(file.Write(Path("7.vrl")));
  const auto events = Events(*Open());
  const auto ends = OfKind<ProcessExit>(events);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].time_ns, static_cast<int64_t>(kStart + 502));
  EXPECT_EQ(OfKind<ProcessSample>(events)[0].process, ProcessId{0});
}

TEST_F(LiveTraceTest, AProgramWithoutRecordsLastsUntilItsExit) {
  LiveFileBuilder launcher({.writer = format::WriterKind::kLauncher});
  launcher.Stream(1).Add(format::ProcessExit{.time = kStart + 900, .pid = 7, .status = 0});
  ASSERT_TRUE(launcher.Write(Path("launcher.vrl")));
  const auto trace = Open();
  EXPECT_EQ(trace->session().start_ns, static_cast<int64_t>(kStart));
  EXPECT_EQ(trace->session().end_ns, static_cast<int64_t>(kStart + 900));
}

TEST_F(LiveTraceTest, TwoFilesOfOnePidAreTwoProcesses) {
  for (uint64_t i = 0; i < 2; ++i) {
    LiveFileBuilder file({.pid = 7, .start_ns = kStart + i * 5000});
    file.Stream(1).Add(CpuAlloc(i * 5000 + 100, 0x1000, 1));
    ASSERT_TRUE(file.Write(Path("7." + std::to_string(i) + ".vrl")));
  }
  LiveFileBuilder launcher({.writer = format::WriterKind::kLauncher});
  launcher.Stream(1).Add(format::ProcessExit{.time = kStart + 6000, .pid = 7, .status = 0});
  ASSERT_TRUE(launcher.Write(Path("launcher.vrl")));
  auto trace = Open();
  ASSERT_EQ(trace->processes().size(), 2u);
  EXPECT_FALSE(trace->processes()[0].wait_status.has_value());
  EXPECT_EQ(trace->processes()[1].wait_status, 0);
  const auto ends = OfKind<ProcessExit>(Events(*trace));
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].time_ns, static_cast<int64_t>(kStart + 5000));
  EXPECT_EQ(ends[0].As<ProcessExit>().status, UINT64_MAX);
  EXPECT_EQ(ends[1].time_ns, static_cast<int64_t>(kStart + 6000));
}

TEST_F(LiveTraceTest, ConvertsTicksThroughAnchors) {
  LiveFileBuilder file({.ticks_per_ns = 2.7});
  auto& main = file.Stream(1);
  const auto add = [&](uint64_t ns) {
    main.Add(format::BlockAlloc{
        .time = file.Ticks(kStart + ns), .address = ns, .size = 1, .device = -1});
  };
  add(100);
  main.Add(
      format::Anchor{.time = file.Ticks(kStart + 20'000'000), .monotonic_ns = kStart + 20'000'000});
  add(30'000'000);
  main.Add(
      format::Anchor{.time = file.Ticks(kStart + 40'000'000), .monotonic_ns = kStart + 40'000'000});
  // Wild pairs, as of a thread that slept between its two readings.
  main.Add(
      format::Anchor{.time = file.Ticks(kStart + 60'000'000), .monotonic_ns = kStart + 90'000'000});
  main.Add(format::Anchor{.time = file.Ticks(kStart + 70'000'000), .monotonic_ns = 5});
  add(80'000'000);
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  // A second process has one pair of clocks only.
  LiveFileBuilder other({.pid = 101, .start_ns = kStart + 1000, .ticks_per_ns = 2.7});
  other.Stream(1).Add(format::BlockAlloc{
      .time = other.Ticks(kStart + 50'000'000), .address = 50'000'000, .size = 1, .device = -1});
  ASSERT_TRUE(other.Write(Path("2.vrl")));
  const auto allocs = OfKind<BlockAlloc>(Events(*Open()));
  ASSERT_EQ(allocs.size(), 4u);
  for (const Event& event : allocs) {
    EXPECT_NEAR(static_cast<double>(event.time_ns - static_cast<int64_t>(kStart)),
                static_cast<double>(event.As<BlockAlloc>().address), 3);
  }
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

TEST_F(LiveTraceTest, LinksAndPipesInItAreNotRead) {
  LiveFileBuilder file;
  file.Stream(1).Add(CpuAlloc(1, 0x1000, 1));
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  ASSERT_TRUE(file.Write(Path("elsewhere")));
  fs::create_symlink(Path("elsewhere"), Path("2.vrl"));
  ASSERT_EQ(mkfifo(Path("3.vrl").c_str(), 0600), 0);
  auto trace = Open();
  EXPECT_EQ(OfKind<BlockAlloc>(Events(*trace)).size(), 1u);
  EXPECT_EQ(trace->processes().size(), 1u);
}

TEST_F(LiveTraceTest, SkipsUnknownRecordsByLength) {
  LiveFileBuilder file;
  auto& main = file.Stream(1);
  main.Add(CpuAlloc(1, 0x1000, 1));
  main.AddRaw(std::string_view("\xee\x03new", 5));
  main.AddRaw(std::string("\xef\xff\x00\x02\x00\x00", 6) + std::string(512, 'x'));
  main.Add(CpuAlloc(2, 0x2000, 1));
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  auto trace = Open();
  EXPECT_EQ(OfKind<BlockAlloc>(Events(*trace)).size(), 2u);
  EXPECT_EQ(LossCount(*trace, format::Loss::kUnknownRecord), 2u);
}

TEST_F(LiveTraceTest, SkipsADamagedChunkAndSaysSo) {
  LiveFileBuilder file;
  auto& main = file.Stream(1);
  const uint64_t stack = main.PyFrame(0, "a.py", "early", 1);
  main.Add(CpuAlloc(1, 0x1000, 1, stack));
  main.Seal();
  const uint64_t lost_stack = main.PyFrame(0, "a.py", "lost", 2);
  main.Add(CpuAlloc(2, 0x2000, 1));
  main.Seal();
  main.Add(CpuAlloc(3, 0x3000, 1, lost_stack));
  main.Add(CpuAlloc(4, 0x4000, 1, stack));
  std::string bytes = file.Bytes();
  bytes[2 * format::kPageBytes + 70] ^= 1;  // in the second chunk's records
  WriteBytes("1.vrl", bytes);
  auto trace = Open();
  const auto allocs = OfKind<BlockAlloc>(Events(*trace));
  ASSERT_EQ(allocs.size(), 3u);
  EXPECT_EQ(allocs[1].As<BlockAlloc>().address, 0x3000u);
  EXPECT_EQ(allocs[1].As<BlockAlloc>().stack, StackId{});
  EXPECT_EQ(allocs[2].As<BlockAlloc>().stack, allocs[0].As<BlockAlloc>().stack);
  EXPECT_EQ(LossCount(*trace, format::Loss::kDamagedBytes), 1u);
  EXPECT_EQ(LossCount(*trace, format::Loss::kUnknownStack), 1u);

  // A chunk header that is gone: found again at the next page with the magic.
  bytes = file.Bytes();
  std::memset(bytes.data() + 2 * format::kPageBytes, 0x55, 64);
  WriteBytes("1.vrl", bytes);
  trace = Open();
  EXPECT_EQ(OfKind<BlockAlloc>(Events(*trace)).size(), 3u);
  EXPECT_EQ(LossCount(*trace, format::Loss::kDamagedBytes), 1u);
}

TEST_F(LiveTraceTest, CountsTheRecordThatWasBeingWritten) {
  LiveFileBuilder file;
  file.Stream(1).Add(CpuAlloc(1, 0x1000, 1));
  std::string bytes = file.Bytes();
  uint32_t committed;
  std::memcpy(&committed,
              bytes.data() + format::kPageBytes + offsetof(format::ChunkHeader, committed_bytes),
              4);
  const size_t end = format::kPageBytes + sizeof(format::ChunkHeader) + committed;
  bytes[end] = 0x10;  // a record begun after the last commit
  bytes[end + 1] = 0x08;
  WriteBytes("1.vrl", bytes);
  auto trace = Open();
  EXPECT_EQ(OfKind<BlockAlloc>(Events(*trace)).size(), 1u);
  EXPECT_EQ(LossCount(*trace, format::Loss::kUnfinishedRecord), 1u);
}

TEST_F(LiveTraceTest, AFileThatWasJustBeingMadeIsNoLoss) {
  LiveFileBuilder file;
  file.Stream(1).Add(CpuAlloc(1, 0x1000, 1));
  std::string bytes = file.Bytes();
  WriteBytes("1.vrl", bytes);
  std::memset(bytes.data() + 4, 0, 4);  // the last of the magic comes last
  WriteBytes("2.vrl", bytes.substr(0, format::kPageBytes));
  EXPECT_EQ(LossCount(*Open(), format::Loss::kDamagedBytes), 0u);
  std::memset(bytes.data(), 0, 8);  // an older vramscope wrote all of it last
  WriteBytes("2.vrl", bytes.substr(0, format::kPageBytes));
  EXPECT_EQ(LossCount(*Open(), format::Loss::kDamagedBytes), 0u);
  WriteBytes("2.vrl", bytes);
  EXPECT_EQ(LossCount(*Open(), format::Loss::kDamagedBytes), 1u);
  EXPECT_EQ(LossCount(*Open(), format::Loss::kUnfinishedRecord), 0u);
  WriteBytes("3.vrl", "");  // its process was killed as it made it, or it was cut: unknown
  EXPECT_EQ(LossCount(*Open(), format::Loss::kDamagedBytes), 1u);
  EXPECT_EQ(LossCount(*Open(), format::Loss::kUnfinishedRecord), 1u);
}

TEST_F(LiveTraceTest, AFileOfMoreThanAPageThatIsZeroIsALoss) {
  LiveFileBuilder file;
  file.Stream(1).Add(CpuAlloc(1, 0x1000, 1));
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  WriteBytes("2.vrl", std::string(format::kPageBytes, '\0'));
  EXPECT_EQ(LossCount(*Open(), format::Loss::kDamagedBytes), 0u);
  WriteBytes("2.vrl", std::string(81 * format::kPageBytes, '\0'));
  const auto trace = Open();
  EXPECT_EQ(LossCount(*trace, format::Loss::kDamagedBytes), 1u);
  EXPECT_EQ(trace->losses()[0].bytes, 81 * format::kPageBytes);
}

TEST_F(LiveTraceTest, FilesThatTheManifestHasAndTheDirectoryHasNotAreALoss) {
  LiveFileBuilder file;
  file.Stream(1).Add(CpuAlloc(1, 0x1000, 1));
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  const std::string start = format::kManifestStart;
  WriteBytes("manifest", start + "1.vrl\n");
  EXPECT_EQ(LossCount(*Open(), format::Loss::kMissingFiles), 0u);
  // The last line was cut off, and one line does not name a live file.
  WriteBytes("manifest", start + "1.vrl\n2.vrl\n3.vrl\n../4.vrl\nnotes\n5.vr");
  const auto trace = Open();
  EXPECT_EQ(LossCount(*trace, format::Loss::kMissingFiles), 2u);
  EXPECT_THAT(trace->session().notes,
              ::testing::Contains(std::pair<std::string, std::string>("missing file", "3.vrl")));
  fs::remove(Path("1.vrl"));
  EXPECT_THAT(OpenTrace(directory_).status().message(), HasSubstr("its files are missing"));
}

TEST_F(LiveTraceTest, CarriesTheWritersOwnLosses) {
  LiveFileBuilder file;
  file.AddLoss(format::Loss::kFileFull, 12);
  file.Stream(1).Add(format::Lost{.loss = 13, .count = 2});
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  auto trace = Open();
  EXPECT_EQ(LossCount(*trace, format::Loss::kFileFull), 12u);
  EXPECT_EQ(LossCount(*trace, format::Loss::kNotRecorded), 2u);
}

TEST_F(LiveTraceTest, EveryTruncationKeepsWhatIsBeforeIt) {
  LiveFileBuilder file;
  for (uint32_t stream = 1; stream <= 2; ++stream) {
    auto& out = file.Stream(stream);
    for (uint64_t i = 0; i < 200; ++i) {
      out.Add(CpuAlloc(i * 10, (stream << 20) + i * 64, 1, out.PyFrame(0, "a.py", "f", 1 + i % 3)));
    }
  }
  const std::string bytes = file.Bytes();
  size_t last_count = 0;
  for (size_t cut = format::kPageBytes; cut <= bytes.size(); cut += cut < 4400 ? 1 : 97) {
    WriteBytes("1.vrl", bytes.substr(0, cut));
    auto trace = Open();
    ASSERT_NE(trace, nullptr);
    const size_t count = OfKind<BlockAlloc>(Events(*trace)).size();
    EXPECT_GE(count, last_count) << cut;
    last_count = count;
  }
  WriteBytes("1.vrl", bytes);
  EXPECT_EQ(OfKind<BlockAlloc>(Events(*Open())).size(), 400u);
  for (const size_t cut : {0u, 1u, 8u, 100u, 3000u}) {
    WriteBytes("1.vrl", bytes.substr(0, cut));
    auto trace = OpenTrace(directory_);
    ASSERT_FALSE(trace.ok());
    EXPECT_THAT(trace.status().message(), HasSubstr("is not a live file of vramscope"));
  }
}

TEST_F(LiveTraceTest, RandomDamageNeverStopsTheReader) {
  LiveFileBuilder file;
  auto& main = file.Stream(1);
  main.Thread(3, "main");
  for (uint64_t i = 0; i < 300; ++i) {
    main.Add(CpuAlloc(i * 10, i * 64, i, main.PyFrame(0, "a.py", "f", 1 + i % 9)));
    if (i % 7 == 0)
      main.Add(format::NativeStack{.id = 100000 + i, .parent = 0, .pc = 0x400000 + i});
  }
  const std::string good = file.Bytes();
  std::mt19937_64 random(42);
  for (int round = 0; round < 400; ++round) {
    std::string bytes = good;
    for (int flips = 0; flips < 1 + round % 20; ++flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    WriteBytes("1.vrl", bytes);
    auto trace = OpenTrace(directory_);
    if (!trace.ok())
      continue;
    const auto events = Events(**trace);
    EXPECT_EQ(events.size(), (*trace)->session().event_count);
  }
}

TEST_F(LiveTraceTest, ErrorsAreOneClearLine) {
  auto trace = OpenTrace(directory_);
  EXPECT_THAT(trace.status().message(), HasSubstr("holds no recording"));
  trace = OpenTrace(Path("none.vram"));
  EXPECT_THAT(trace.status().message(), HasSubstr("none.vram: no such file"));
  LiveFileBuilder newer({.major = format::kMajorVersion + 1});
  ASSERT_TRUE(newer.Write(Path("1.vrl")));
  trace = OpenTrace(directory_);
  EXPECT_THAT(trace.status().message(), HasSubstr("recorded by a newer vramscope"));
}

TEST_F(LiveTraceTest, StandsInForAMissingVram) {
  fs::create_directories(Path("a.vram.d"));
  LiveFileBuilder file;
  file.Stream(1).Add(CpuAlloc(1, 0x1000, 1));
  ASSERT_TRUE(file.Write(Path("a.vram.d/1.vrl")));
  WriteBytes("a.vram.d/session.json",
             R"({"name": "first light", "version": "1.2.3", "command": ["python", "a b.py"],
                 "options": {"cpu": true, "ring": null}, "python": null, "start_wall_ns": 17,
                 "host": "node7", "odd": "\u00fc\ud83d\ude00\n")");
  auto trace = OpenTrace(Path("a.vram"));
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ((*trace)->session().path, Path("a.vram"));
  EXPECT_EQ((*trace)->session().name, "first light");
  EXPECT_EQ((*trace)->session().version, "1.2.3");
  EXPECT_EQ((*trace)->session().host, "node7");
  EXPECT_THAT(
      (*trace)->session().notes,
      ::testing::ElementsAre(std::pair("options", "cpu=true ring=null"), std::pair("host", "node7"),
                             std::pair("odd", "\xc3\xbc\xf0\x9f\x98\x80\n"),
                             std::pair("function names and source lines",
                                       "not looked up: it was copied, or not recorded by "
                                       "vramscope run")));
}

}  // namespace
}  // namespace vramscope::trace
