// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "trace/testing/live_trace_fixture.h"

namespace vramscope::trace {
namespace {

namespace fs = std::filesystem;
using testing::LiveFileBuilder;

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

TEST_F(LiveTraceTest, FrameOfTheInterpreter_IsInNoStack) {
  LiveFileBuilder file;
  auto& main = file.Stream(1);
  const auto push = [&](uint64_t id, uint64_t parent, const char* name, const char* path) {
    main.Add(format::PyStack{
        .id = id, .parent = parent, .code = main.PyCode(path, name, 1), .instruction = 0});
  };
  push(70, 0, "main", "main.py");
  push(71, 70, "__init__", "__init__");
  push(72, 71, "__init__", "layers.py");
  main.Add(CpuAlloc(100, 0x1000, 512, 72));
  ASSERT_TRUE(file.Write(Path("1.vrl")));
  auto trace = Open();
  ASSERT_NE(trace, nullptr);
  std::vector<std::string> files;
  const auto allocs = OfKind<BlockAlloc>(Events(*trace));
  ASSERT_EQ(allocs.size(), 1u);
  const tables::Dictionaries& known = trace->dictionaries();
  for (auto stack = allocs[0].As<BlockAlloc>().stack; stack.value != 0;
       stack = known.stack(stack).parent)
    files.emplace_back(known.text(known.frame(known.stack(stack).frame).file));
  EXPECT_THAT(files, ::testing::ElementsAre("layers.py", "main.py"));
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
    if (first[i].Is<BlockAlloc>()) {
      EXPECT_EQ(first[i].As<BlockAlloc>().stack, second[i].As<BlockAlloc>().stack);
    }
    if (first[i].Is<Mark>()) {
      EXPECT_EQ(first[i].As<Mark>().name, second[i].As<Mark>().name);
    }
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

}  // namespace
}  // namespace vramscope::trace
