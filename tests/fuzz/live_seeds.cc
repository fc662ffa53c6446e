// SPDX-License-Identifier: Apache-2.0
#include "live_seeds.h"

#include <string_view>

#include "base/units.h"
#include "format/enums.h"
#include "trace/testing/live_file_builder.h"

namespace vramscope::fuzz {
namespace {

using trace::testing::LiveFileBuilder;

constexpr uint64_t kStart = 1'000'000'000;

constexpr format::Bytes Text(std::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace

std::string TensorProgram() {
  LiveFileBuilder file({.sealed_tails = true});
  auto& main = file.Stream(1);
  main.Thread(100, "python");
  const uint64_t outer = main.PyFrame(0, "train.py", "main", 10);
  const uint64_t inner = main.PyFrame(outer, "train.py", "forward", 20);
  for (uint64_t i = 0; i < 8; ++i) {
    main.Add(format::BlockAlloc{.time = kStart + i * 1000,
                                .address = 0x7000 + i * 4096,
                                .size = uint64_t{512} << i,
                                .device = -1,
                                .stack = inner});
  }
  main.Add(format::Mark{.time = kStart + 9000, .name = Text("here")});
  for (uint64_t i = 0; i < 6; ++i)
    main.Add(
        format::BlockFree{.time = kStart + 10000 + i, .address = 0x7000 + i * 4096, .device = -1});
  main.Add(format::Teardown{.time = kStart + 20000, .kind = 0});
  return file.Bytes();
}

std::string DriverProgram() {
  LiveFileBuilder file({.sealed_tails = true});
  auto& main = file.Stream(1);
  const uint64_t api = main.String("cuMemAlloc_v2");
  const auto device = static_cast<uint64_t>(format::MemoryKind::kDevice);
  main.Add(format::Device{
      .device = 0, .total_bytes = 1024 * kMiB, .uuid = Text("GPU-1"), .name = Text("a GPU")});
  uint64_t time = kStart;
  const auto next = [&time] { return time += 100; };
  main.Add(
      format::ContextCreate{.begin = next(), .end = next(), .api = api, .context = 1, .device = 0});
  main.Add(format::Reading{
      .begin = next(), .end = next(), .device = 0, .free = 500 * kMiB, .total = 1024 * kMiB});
  main.Add(format::Alloc{.begin = next(),
                         .end = next(),
                         .api = api,
                         .kind = device,
                         .device = 0,
                         .context = 1,
                         .address = 0x100000000,
                         .size = 20 * kMiB});
  main.Add(format::BlockAlloc{.time = next(), .address = 0x100000000, .size = kMiB, .device = 0});
  main.Add(format::AllocatorTotals{
      .time = next(), .device = 0, .allocated = kMiB, .reserved = 20 * kMiB});
  main.Add(format::HandleCreate{
      .begin = next(), .end = next(), .device = 0, .handle = 7, .size = 2 * kMiB});
  main.Add(
      format::Reserve{.begin = next(), .end = next(), .address = 0x200000000, .size = 2 * kMiB});
  main.Add(format::Map{
      .begin = next(), .end = next(), .address = 0x200000000, .size = 2 * kMiB, .handle = 7});
  main.Add(format::PoolCreate{.begin = next(), .end = next(), .pool = 9, .device = 0, .kind = 1});
  main.Add(format::PoolReading{
      .time = next(), .pool = 9, .device = 0, .reserved = 32 * kMiB, .used = kMiB});
  main.Add(format::Implicit{
      .begin = next(), .end = next(), .api = api, .kind = 4, .device = 0, .context = 1});
  main.Add(format::Reading{
      .begin = next(), .end = next(), .device = 0, .free = 440 * kMiB, .total = 1024 * kMiB});
  main.Add(format::Unmap{.begin = next(), .end = next(), .address = 0x200000000, .size = 2 * kMiB});
  main.Add(format::HandleRelease{.begin = next(), .end = next(), .handle = 7});
  main.Add(format::Free{
      .begin = next(), .end = next(), .api = api, .kind = device, .address = 0x100000000});
  main.Add(format::ContextDestroy{
      .begin = next(), .end = next(), .api = api, .context = 1, .device = 0});
  return file.Bytes();
}

std::string ScopedProgram() {
  LiveFileBuilder file({.pid = 101, .sealed_tails = true, .ticks_per_ns = 2.5});
  for (uint32_t number = 1; number <= 3; ++number) {
    auto& out = file.Stream(number);
    out.Thread(100 + number, "worker");
    const uint64_t name = out.String("solve");
    out.Add(format::Image{.begin = 0x400000,
                          .end = 0x500000,
                          .bias = 0x400000,
                          .path = Text("/usr/lib/libsolve.so"),
                          .build_id = Text("12345678")});
    out.Add(format::Scope{.id = 900, .parent = 0, .name = name});
    out.Add(format::Scope{.id = 901, .parent = 900, .name = out.String("jacobi")});
    out.Add(format::NativeStack{.id = 910, .parent = 0, .pc = 0x400100});
    out.Add(format::NativeStack{.id = 911, .parent = 910, .pc = 0x410200});
    for (uint64_t i = 0; i < 40; ++i) {
      const uint64_t time = file.Ticks(kStart + i * 50'000 + number);
      const uint64_t address = (uint64_t{number} << 32) + i % 8 * 8192;
      if (i % 10 == 0)
        out.Add(format::ScopeIs{.scope = 900 + i / 10 % 2});
      if (i % 20 == 10)
        out.Seal();
      if (i % 16 < 8)
        out.Add(format::BlockAlloc{
            .time = time, .address = address, .size = 4096, .device = -1, .native = 911});
      else
        out.Add(format::BlockFree{.time = time, .address = address, .size = 4096, .device = -1});
    }
    for (uint64_t i = 0; i < 4; ++i) {
      out.Add(format::NvtxCounter{.time = file.Ticks(kStart + i * 90'000 + number),
                                  .counter = i % 2,
                                  .device = format::kNoDevice,
                                  .name = name,
                                  .bytes = static_cast<int64_t>(i * 4096)});
    }
    out.Add(format::Runtime{.key = Text("rank"), .value = Text("1")});
  }
  return file.Bytes();
}

std::string Launcher() {
  LiveFileBuilder file({.pid = 99, .writer = format::WriterKind::kLauncher, .sealed_tails = true});
  auto& out = file.Stream(1);
  out.Add(format::Device{
      .device = 0, .total_bytes = 1024 * kMiB, .uuid = Text("GPU-1"), .name = Text("a GPU")});
  for (uint64_t i = 0; i < 10; ++i) {
    const uint64_t time = kStart + i * 1000;
    out.Add(format::DeviceSample{.begin = time,
                                 .end = time + 10,
                                 .device = 0,
                                 .used = i * 10 * kMiB,
                                 .free = (1000 - i * 10) * kMiB,
                                 .reserved = 24 * kMiB,
                                 .total = 1024 * kMiB});
    out.Add(format::ProcessSample{
        .begin = time, .end = time + 10, .device = 0, .pid = 100, .used = i * 9 * kMiB});
  }
  out.Add(format::ProcessExit{.time = kStart + 30000, .pid = 100, .status = 0});
  return file.Bytes();
}

std::string SessionJson() {
  return R"({"name": "train", "version": "1.0.0", "command": ["python", "train.py"],)"
         R"( "options": {"cpu": true, "sizes": [1, 2]}, "start_wall_ns": 1700000000000000000})";
}

}  // namespace vramscope::fuzz
