// SPDX-License-Identifier: Apache-2.0
// The finished file: how fast it is written, scanned and asked for an instant, and how large it is.
// The rows are those of a training: its allocations repeat, its times do not.
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tables/reader.h"
#include "tables/writer.h"

namespace {

using namespace vramscope::tables;

constexpr size_t kRows = 5'000'000;  // 10 million events: an allocation and a free each
constexpr uint32_t kLayers = 48;
constexpr uint32_t kSites = kLayers * 8 + 1;

// A caching allocator under a training: what is freed last is given out first, by size.
class Training {
 public:
  explicit Training(AllocationSink* sink) : sink_(sink) {}

  void Run(size_t rows) {
    while (rows_ < rows)
      Step();
  }

 private:
  struct Block {
    uint64_t address, bytes, requested;
    int64_t begin_ns;
    uint32_t site;
  };

  // Times of calls are noisy: most take about as long as ever, some much longer.
  void Pass(int64_t typical_ns) {
    const uint64_t noise = random_();
    now_ns_ += typical_ns + static_cast<int64_t>(noise % static_cast<uint64_t>(typical_ns / 4 + 1));
    if (noise >> 58 == 0)
      now_ns_ += static_cast<int64_t>(random_() % 20'000);
  }

  Block Allocate(uint32_t layer, uint32_t kind, uint64_t requested) {
    constexpr uint64_t kGranule = 512;
    const uint64_t bytes = (requested + kGranule - 1) / kGranule * kGranule;
    Pass(900);
    std::vector<uint64_t>& free = free_[bytes];
    if (free.empty()) {
      free.push_back(next_address_);
      next_address_ += bytes;
    }
    const uint64_t address = free.back();
    free.pop_back();
    return {address, bytes, requested, now_ns_, 1 + layer * 8 + kind};
  }

  void Free(const Block& block) {
    Pass(500);
    free_[block.bytes].push_back(block.address);
    const AllocationRow row{block.begin_ns,     now_ns_,     block.begin_ns,
                            block.address,      block.bytes, block.bytes - block.requested,
                            SiteId{block.site}, SegmentId{1}};
    if (!sink_->Add(row).ok())
      std::abort();
    ++rows_;
  }

  void Temporary(uint32_t layer, uint32_t kind, uint64_t bytes) {
    const Block block = Allocate(layer, kind, bytes);
    Pass(4000);
    Free(block);
  }

  void Step() {
    for (const Block& gradient : std::exchange(gradients_, {}))
      Free(gradient);
    std::vector<Block> activations;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      Temporary(layer, 0, 70'000 + layer % 3 * 1000);
      activations.push_back(Allocate(layer, 1, 131'072));
      activations.push_back(Allocate(layer, 2, 300));
      Pass(6000);
    }
    for (uint32_t layer = kLayers; layer-- > 0;) {
      Temporary(layer, 3, 131'072);
      Temporary(layer, 4, 1 << 20);
      gradients_.push_back(Allocate(layer, 5, 262'144));
      Free(activations.back());
      activations.pop_back();
      Free(activations.back());
      activations.pop_back();
    }
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      Temporary(layer, 6, 262'144);
      Temporary(layer, 7, 262'144);
    }
  }

  AllocationSink* sink_;
  size_t rows_ = 0;
  int64_t now_ns_ = 1'000'000'000;
  uint64_t next_address_ = 0x7f0000000000;
  std::map<uint64_t, std::vector<uint64_t>> free_;
  std::vector<Block> gradients_;
  std::mt19937_64 random_{1};
};

// Rows to be written later: making them is not what is measured.
class Rows : public AllocationSink {
 public:
  vramscope::util::Status Add(const AllocationRow& row) override {
    rows.push_back(row);
    return {};
  }
  std::vector<AllocationRow> rows;
};

const std::vector<AllocationRow>& TrainingRows() {
  static const auto* rows = [] {
    auto* made = new Rows;
    Training(made).Run(kRows);
    return made;
  }();
  return rows->rows;
}

uint64_t WriteTraining(int fd) {
  Tables tables;
  tables.sites.resize(kSites);
  tables.segments.resize(2);
  Writer writer(fd, "bench.vram");
  for (const AllocationRow& row : TrainingRows()) {
    if (!writer.Add(row).ok())
      std::abort();
  }
  if (!writer.Finish(tables).ok())
    std::abort();
  return writer.file_bytes();
}

// The file of all rows, in memory.
const Recording& TrainingRecording() {
  static const auto* recording = [] {
    const int fd = memfd_create("bench", MFD_CLOEXEC);
    WriteTraining(fd);
    auto opened = OpenDescriptor(fd, "bench.vram");
    if (!opened.ok()) {
      std::fprintf(stderr, "%s\n", opened.status().message().c_str());
      std::abort();
    }
    return opened->release();
  }();
  return *recording;
}

void Write(benchmark::State& state) {
  (void)TrainingRows();
  uint64_t bytes = 0;
  for (auto _ : state) {
    const int fd = memfd_create("bench", MFD_CLOEXEC);
    bytes = WriteTraining(fd);
    close(fd);
  }
  const auto rows = static_cast<double>(TrainingRows().size());
  state.counters["rows"] = benchmark::Counter(rows, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["bytes_per_row"] = static_cast<double>(bytes) / rows;
}
BENCHMARK(Write)->Unit(benchmark::kMillisecond)->UseRealTime()->MeasureProcessCPUTime();

// What `report` does before anything else: the columns that a sum by site over all rows needs.
void Scan(benchmark::State& state) {
  const Recording& recording = TrainingRecording();
  const auto threads = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    std::vector<std::thread> workers;
    for (size_t worker = 0; worker < threads; ++worker) {
      workers.emplace_back([&recording, worker, threads] {
        AllocationFrame frame;
        for (size_t i = worker; i < recording.frame_count(); i += threads) {
          if (!recording.Read(i, kBeginNs | kEndNs | kBytes | kSite, &frame).ok())
            std::abort();
          benchmark::DoNotOptimize(frame.bytes.data());
        }
      });
    }
    for (std::thread& worker : workers)
      worker.join();
  }
  state.counters["rows"] = benchmark::Counter(static_cast<double>(TrainingRows().size()),
                                              benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(Scan)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

void Instant(benchmark::State& state) {
  const Recording& recording = TrainingRecording();
  const int64_t last_ns = TrainingRows().back().end_ns;
  std::mt19937_64 random(2);
  size_t frames = 0, live = 0;
  AllocationFrame frame;
  for (auto _ : state) {
    const auto time_ns = static_cast<int64_t>(random() % static_cast<uint64_t>(last_ns));
    for (size_t i = 0; i < recording.frame_count(); ++i) {
      if (!recording.zone(i).MayHoldLiveAt(time_ns))
        continue;
      if (!recording.Read(i, kBeginNs | kEndNs | kBytes | kSite, &frame).ok())
        std::abort();
      ++frames;
      for (size_t row = 0; row < frame.rows; ++row)
        live += frame.begin_ns[row] <= time_ns && time_ns < frame.end_ns[row] ? size_t{1} : 0;
    }
  }
  const auto instants = static_cast<double>(state.iterations());
  state.counters["frames"] = static_cast<double>(frames) / instants;
  state.counters["live"] = static_cast<double>(live) / instants;
}
BENCHMARK(Instant)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
