// SPDX-License-Identifier: Apache-2.0
// Events per second and peak memory of resolving a made-up training: no reader and no file
// involved.
//
//   resolve_bench [EVENTS] [LIVE_BLOCKS] [cpu|gpu] [names]
//
// `names`: every stack runs a module, and forwards and backwards of a thousand nodes take turns.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
#include <vector>

#include "resolve/resolve.h"
#include "tables/recording.h"

namespace vramscope::resolve {
namespace {

constexpr size_t kStacks = 5000;
constexpr uint64_t kSegmentBytes = uint64_t{20} << 20;

// Makes its events as it is read: batches of a repeating alloc and free pattern with a fixed number
// of live blocks. Each pass makes the same events.
class MadeUpTrace : public trace::Trace {
 public:
  MadeUpTrace(uint64_t events, uint64_t live, bool gpu, bool names)
      : count_(events), live_(live), gpu_(gpu), names_(names) {
    trace::Device device;
    device.kind = gpu ? tables::DeviceKind::kGpu : tables::DeviceKind::kCpu;
    devices_.push_back(device);
    trace::Process process;
    process.pid = 1;
    processes_.push_back(process);
    for (uint32_t i = 1; i < kStacks; ++i) {
      tables::FrameRow frame;
      frame.line = i;
      dictionaries_.AddStack(tables::StackId{i / 3}, dictionaries_.AddFrame(frame), names ? i : 0);
    }
    tables::FrameRow allocator;
    allocator.kind = tables::FrameKind::kNative;
    allocator.image = dictionaries_.AddText("libc10_cuda.so");
    dictionaries_.AddStack({}, dictionaries_.AddFrame(allocator));
    threads_.push_back({trace::ProcessId{0}, 1, "main"});
    threads_.push_back({trace::ProcessId{0}, 2, "autograd"});
    session_.start_ns = 1;
    session_.end_ns = static_cast<int64_t>(1 + events * 100);
  }
  std::string_view SourceLine(tables::StringId, uint32_t) const override { return {}; }

  util::Status ForEachEvent(const EventSink& sink) override {
    std::mt19937 random(1);
    std::vector<trace::Event> batch;
    batch.reserve(4096);
    std::vector<uint64_t> sizes(live_);
    std::vector<bool> taken(live_);
    int64_t time_ns = 1;
    uint64_t node = 0;
    uint64_t allocations = 0;
    const uint64_t slots_per_segment = kSegmentBytes / 4096;
    const uint64_t base = uint64_t{0x7f} << 40;
    for (uint64_t segment = 0; gpu_ && segment <= live_ / slots_per_segment; ++segment) {
      trace::Event event;
      event.process = trace::ProcessId{0};
      event.Become(trace::Alloc{.device = trace::DeviceId{0},
                                .address = base + segment * kSegmentBytes,
                                .size = kSegmentBytes,
                                .native = tables::StackId{kStacks}});
      event.time_ns = event.begin_ns = event.end_ns = time_ns;
      batch.push_back(event);
    }
    for (uint64_t i = 0; i < count_; ++i) {
      const uint64_t slot = random() % live_;
      trace::Event event;
      taken[slot] = !taken[slot];
      if (taken[slot])
        sizes[slot] = 512 + random() % 3000;
      event.process = trace::ProcessId{0};
      const uint64_t address = base + slot * 4096;
      if (taken[slot])
        event.Become(trace::BlockAlloc{
            .address = address,
            .size = sizes[slot],
            .device = trace::DeviceId{0},
            .stack = tables::StackId{static_cast<uint32_t>(1 + slot % (kStacks - 1))}});
      else
        event.Become(trace::BlockFree{
            .address = address, .size = sizes[slot], .device = trace::DeviceId{0}});
      if (names_ && taken[slot])
        SetNode(event, allocations++, &node);
      event.time_ns = event.begin_ns = event.end_ns = time_ns;
      time_ns += 100;
      batch.push_back(event);
      if (batch.size() == batch.capacity()) {
        sink(batch);
        batch.clear();
      }
    }
    sink(batch);
    return {};
  }

 private:
  static void SetNode(trace::Event& event, uint64_t allocation, uint64_t* node) {
    const bool forward = allocation / 1000 % 2 == 0;
    event.thread = tables::ThreadId{forward ? 1u : 2u};
    auto& block = event.As<trace::BlockAlloc>();
    block.sequence = forward ? 2 * ++*node + 1 : 2 * (*node - 1 - allocation % 1000) + 2;
    if (!forward)
      block.stack = {};
  }

  uint64_t count_;
  uint64_t live_;
  bool gpu_;
  bool names_;
};

// Counts the rows, and their bytes so that none is left out.
class Counter : public tables::AllocationSink {
 public:
  util::Status Add(const tables::AllocationRow& row) override {
    ++rows;
    bytes += row.bytes;
    return {};
  }
  uint64_t rows = 0;
  uint64_t bytes = 0;
};

// Processor time: the machine may be busy with other things.
double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

int Main(int argc, char** argv) {
  const uint64_t events = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20'000'000;
  const uint64_t live = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 20'000;
  const bool gpu = argc > 3 && std::string_view(argv[3]) == "gpu";
  const bool names = argc > 4 && std::string_view(argv[4]) == "names";
  MadeUpTrace trace(events, live, gpu, names);
  double start = CpuSeconds();
  uint64_t seen = 0;
  (void)trace.ForEachEvent([&](std::span<const trace::Event> batch) { seen += batch.size(); });
  const double making_s = CpuSeconds() - start;
  start = CpuSeconds();
  Counter rows;
  const auto tables = Resolve(trace, rows);
  const double pass_s = CpuSeconds() - start;
  if (!tables) {
    std::fprintf(stderr, "%s\n", tables.status().message().c_str());
    return 1;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("events %llu  live %llu  %s%s\n", static_cast<unsigned long long>(seen),
              static_cast<unsigned long long>(live), gpu ? "gpu" : "cpu", names ? " names" : "");
  std::printf("making the events   %6.1f ns an event\n",
              making_s * 1e9 / static_cast<double>(seen));
  std::printf("resolving           %6.1f ns an event, %.1f M events/s\n",
              (pass_s - making_s) * 1e9 / static_cast<double>(seen),
              static_cast<double>(seen) / (pass_s - making_s) / 1e6);
  std::printf("rows                %llu, %zu sites, %llu bytes\n",
              static_cast<unsigned long long>(rows.rows), tables->sites.size(),
              static_cast<unsigned long long>(rows.bytes));
  std::printf("largest memory      %6.1f MiB\n", static_cast<double>(usage.ru_maxrss) / 1024);
  return 0;
}

}  // namespace
}  // namespace vramscope::resolve

int main(int argc, char** argv) {
  return vramscope::resolve::Main(argc, argv);
}
