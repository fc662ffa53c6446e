// SPDX-License-Identifier: Apache-2.0
// How fast a live recording is read, and how fast it is resolved: events a second, from a live file
// of a training's shape.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "resolve/resolve.h"
#include "tables/recording.h"
#include "trace/testing/live_file_builder.h"
#include "trace/trace.h"

namespace {

namespace fs = std::filesystem;
namespace format = vramscope::format;
namespace tables = vramscope::tables;
namespace trace = vramscope::trace;

constexpr uint64_t kStart = 1'000'000'000;
constexpr uint64_t kBlocksAStep = 2048;
constexpr uint64_t kStacks = 500;

// Steps that allocate blocks from a few hundred places and free them in reverse, as backward does.
void WriteTraining(const std::string& directory, uint64_t events) {
  trace::testing::LiveFileBuilder file(
      trace::testing::LiveFileBuilder::Options{.chunk_bytes = format::kChunkBytes});
  auto& thread = file.Stream(1);
  uint64_t stacks[kStacks];
  uint64_t parent = 0;
  for (uint64_t i = 0; i < kStacks; ++i) {
    stacks[i] = thread.PyFrame(parent, "train.py", "forward", i + 1);
    if (i % 25 == 24)
      parent = 0;
    else
      parent = stacks[i];
  }
  uint64_t time = kStart;
  for (uint64_t done = 0; done < events; done += 2 * kBlocksAStep) {
    for (uint64_t i = 0; i < kBlocksAStep; ++i) {
      thread.Add(format::BlockAlloc{.time = time += 300,
                                    .address = 0x7f0000000000 + i * 65536,
                                    .size = 512 + i % 97 * 512,
                                    .device = -1,
                                    .stack = stacks[i % kStacks]});
    }
    for (uint64_t i = kBlocksAStep; i-- > 0;) {
      thread.Add(format::BlockFree{
          .time = time += 200, .address = 0x7f0000000000 + i * 65536, .device = -1});
    }
  }
  fs::create_directories(directory);
  if (!file.Write(directory + "/100.1.vrl"))
    std::abort();
}

class Training : public benchmark::Fixture {
 public:
  void SetUp(benchmark::State& state) override {
    directory_ =
        fs::temp_directory_path() / ("vramscope-bench-" + std::to_string(getpid()) + ".vram.d");
    WriteTraining(directory_, static_cast<uint64_t>(state.range(0)));
  }
  void TearDown(benchmark::State&) override { fs::remove_all(directory_); }

 protected:
  std::string directory_;
};

BENCHMARK_DEFINE_F(Training, Read)(benchmark::State& state) {
  uint64_t events = 0;
  for (auto _ : state) {
    auto opened = trace::OpenTrace(directory_);
    if (!opened) {
      state.SkipWithError(opened.status().message().c_str());
      return;
    }
    const auto status = (*opened)->ForEachEvent(
        [&](std::span<const trace::Event> batch) { events += batch.size(); });
    if (!status.ok()) {
      state.SkipWithError(status.message().c_str());
      return;
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(events));
}

// Takes the rows and forgets them.
class Nowhere : public tables::AllocationSink {
 public:
  vramscope::util::Status Add(const tables::AllocationRow& row) override {
    benchmark::DoNotOptimize(row.bytes);
    return {};
  }
};

BENCHMARK_DEFINE_F(Training, Resolve)(benchmark::State& state) {
  for (auto _ : state) {
    auto opened = trace::OpenTrace(directory_);
    if (!opened) {
      state.SkipWithError(opened.status().message().c_str());
      return;
    }
    Nowhere nowhere;
    auto tables = vramscope::resolve::Resolve(**opened, nowhere);
    if (!tables) {
      state.SkipWithError(tables.status().message().c_str());
      return;
    }
    benchmark::DoNotOptimize(tables);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

BENCHMARK_REGISTER_F(Training, Read)->Arg(1 << 20)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_REGISTER_F(Training, Resolve)->Arg(1 << 20)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
