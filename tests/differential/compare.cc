// SPDX-License-Identifier: Apache-2.0
// Compares a recording of random_driver with the stand-in driver's books, at every instant of the
// truth log: compare RECORDING TRUTH. One replay, which stops at each instant's record.
//
// Exit status: 0 the ledger is right, 1 it is not (what is wrong is printed), 2 it could not look.
#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <string>
#include <vector>

#include "differential/truth_reader.h"
#include "engine/analysis/residual.h"
#include "engine/replay/ledger.h"
#include "trace/trace.h"

namespace differential {
namespace {

namespace engine = vramscope::engine;
namespace trace = vramscope::trace;
namespace format = vramscope::format;
using engine::Part;

constexpr uint64_t kDriverPage = uint64_t{2} << 20;
constexpr size_t kMaxComplaints = 12;

struct KindSums {
  uint64_t linear_bytes = 0, linear_count = 0;
  uint64_t array_bytes = 0, array_count = 0;
  uint64_t physical_bytes = 0, physical_count = 0;
  uint64_t imported_count = 0;
};

struct HostSums {
  uint64_t pinned_bytes = 0, pinned_count = 0;
  uint64_t registered_bytes = 0, registered_count = 0;
  uint64_t managed_bytes = 0, managed_count = 0;
};

class Comparison {
 public:
  Comparison(trace::Trace& recording, const TruthLog& truth)
      : truth_(truth), ledger_(recording, {}) {
    for (const trace::Device& device : recording.devices()) {
      if (device.kind == trace::DeviceKind::kGpu && device.index >= 0)
        gpus_.resize(std::max(gpus_.size(), static_cast<size_t>(device.index) + 1), -1);
    }
    for (size_t i = 0; i < recording.devices().size(); ++i) {
      const trace::Device& device = recording.devices()[i];
      if (device.kind == trace::DeviceKind::kGpu && device.index >= 0)
        gpus_[static_cast<size_t>(device.index)] = static_cast<int>(i);
    }
  }

  void Apply(std::span<const trace::Event> events) {
    size_t begin = 0;
    for (size_t i = 0; i < events.size(); ++i) {
      const trace::Event& event = events[i];
      if (event.kind == trace::EventKind::kDeviceSample) {
        ledger_.Apply(events.subspan(begin, i + 1 - begin));
        begin = i + 1;
        NoteSample(event.device);
      }
      if (event.kind != trace::EventKind::kName || event.address <= kInstantBase ||
          event.address - kInstantBase > truth_.instants.size())
        continue;
      ledger_.Apply(events.subspan(begin, i + 1 - begin));
      begin = i + 1;
      ++compared_;
      Compare(truth_.instants[event.address - kInstantBase - 1]);
    }
    ledger_.Apply(events.subspan(begin));
  }

  void Finish();
  bool right() const { return complaints_ == 0; }
  void PrintCounts() const {
    std::printf("%zu of %zu instants compared, %zu device figures settled, %zu not yet known\n",
                compared_, truth_.instants.size(), settled_, unsettled_);
    std::printf("%zu of %zu samples have a residual\n", samples_with_residual_, samples_);
  }

 private:
  void NoteSample(trace::DeviceId device);
  void Compare(const Instant& instant);
  void CompareDevice(const Instant& instant, const DeviceLine& truth);
  void ComparePools(const Instant& instant);
  void CompareHost(const Instant& instant);
  void CompareSegments(const Instant& instant);
  void Expect(const Instant& instant,
              int device,
              const char* what,
              uint64_t expected,
              int64_t found);
  __attribute__((format(printf, 2, 3))) void Complain(const char* format, ...);

  const TruthLog& truth_;
  engine::Ledger ledger_;
  // By device, the samples that were taken while everything that had moved was known.
  std::vector<std::vector<size_t>> clear_samples_;
  std::vector<int> gpus_;  // by CUDA's number: the ledger's
  size_t compared_ = 0;
  size_t settled_ = 0;
  size_t unsettled_ = 0;
  size_t complaints_ = 0;
  // Counted only: a sample is taken at any moment, and the books say nothing about that one.
  size_t samples_ = 0;
  size_t samples_with_residual_ = 0;
};

void Comparison::Complain(const char* format, ...) {
  if (++complaints_ > kMaxComplaints)
    return;
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::putchar('\n');
}

void Comparison::Expect(const Instant& instant,
                        int device,
                        const char* what,
                        uint64_t expected,
                        int64_t found) {
  const auto difference = found - static_cast<int64_t>(expected);
  if (difference == 0)
    return;
  Complain("operation %" PRIu64 " (%s), instant %" PRIu64
           ", after %s -> %d: device %d, %s: expected %" PRIu64 ", found %" PRId64 " (%+" PRId64
           " = %+.2f MiB)",
           instant.operation, instant.operation_name.c_str(), instant.number, instant.call.c_str(),
           instant.result, device, what, expected, found, difference,
           static_cast<double>(difference) / (1 << 20));
}

// Calls that move memory without saying how much are known with the next reading.
bool IsSettled(const engine::DeviceState& device) {
  const engine::ReadingSeries& series = device.readings;
  return series.after_last.empty() && !series.HasUnclear();
}

void Comparison::NoteSample(trace::DeviceId id) {
  const auto number = static_cast<size_t>(id.value);
  if (number >= ledger_.devices().size())
    return;
  const engine::DeviceState& device = ledger_.devices()[number];
  clear_samples_.resize(ledger_.devices().size());
  if (IsSettled(device) && !device.samples.empty())
    clear_samples_[number].push_back(device.samples.size() - 1);
}

bool IsDriverPart(Part part) {
  return (part >= Part::kContext && part <= Part::kOtherDriver) || part == Part::kRmInternal;
}

void Comparison::CompareDevice(const Instant& instant, const DeviceLine& truth) {
  const auto number = static_cast<size_t>(truth.device);
  if (number >= gpus_.size() || gpus_[number] < 0)
    return;
  const engine::DeviceState& device = ledger_.devices()[static_cast<size_t>(gpus_[number])];
  const auto expect = [&](const char* what, uint64_t expected, auto found) {
    Expect(instant, truth.device, what, expected, static_cast<int64_t>(found));
  };

  std::array<int64_t, 64> parts{};
  int64_t sum = 0;
  for (size_t i = 0; i < device.groups.size(); ++i) {
    parts[static_cast<size_t>(device.group_keys[i].part)] += device.groups[i];
    sum += device.groups[i];
    if (device.groups[i] < 0)
      Complain("instant %" PRIu64 ": device %d, a row of %" PRId64 " bytes", instant.number,
               truth.device, device.groups[i]);
  }
  expect("sum of the rows", static_cast<uint64_t>(device.total), sum);
  int64_t processes = 0;
  uint64_t block_bytes = 0;
  KindSums kinds;
  for (uint32_t i = 0; i < ledger_.spaces().size(); ++i) {
    const engine::Space& space = ledger_.spaces()[i];
    if (space.device != device.id)
      continue;
    processes += space.total;
    block_bytes += space.block_bytes;
    kinds.linear_bytes += space.slab_pages.size() * kDriverPage;
    const auto& holdings = ledger_.processes()[space.process.value].holdings;
    holdings.ForEach([&](uint32_t, const engine::Holding& holding) {
      if (holding.space != i)
        return;
      if (holding.kind == engine::HoldingKind::kHandle) {
        kinds.physical_bytes += holding.priced;
        kinds.physical_count += holding.memory != format::MemoryKind::kIpcImport;
        return;
      }
      if (holding.kind != engine::HoldingKind::kMemory)
        return;
      switch (holding.memory) {
        case format::MemoryKind::kDevice:
        case format::MemoryKind::kPitched:
          kinds.linear_bytes += holding.small ? 0 : holding.priced;
          ++kinds.linear_count;
          break;
        case format::MemoryKind::kArray:
          kinds.array_bytes += holding.priced;
          ++kinds.array_count;
          break;
        case format::MemoryKind::kIpcImport:
          ++kinds.imported_count;
          break;
        default:
          break;
      }
    });
  }
  int64_t driver = 0;
  for (size_t part = 0; part < parts.size(); ++part)
    driver += IsDriverPart(static_cast<Part>(part)) ? parts[part] : 0;
  const int64_t of_nobody = parts[static_cast<size_t>(Part::kOtherProcesses)] +
                            parts[static_cast<size_t>(Part::kRmInternal)];
  expect("sum of the processes", static_cast<uint64_t>(device.total - of_nobody), processes);

  expect("linear memory", truth.linear_charged, kinds.linear_bytes);
  expect("linear allocations", truth.linear_count, kinds.linear_count);
  expect("arrays", truth.array_count, kinds.array_count);
  expect("physical memory", truth.physical_bytes, kinds.physical_bytes);
  expect("physical handles", truth.physical_count, kinds.physical_count);
  expect("imports", truth.imported_count, kinds.imported_count);
  expect("blocks", static_cast<uint64_t>(truth.block_bytes), block_bytes);
  // While a stream is captured nobody can ask what pools and graphs hold.
  if (instant.host.capturing == 0)
    expect("graph memory", truth.graph_reserved,
           parts[static_cast<size_t>(Part::kGraphUsed)] +
               parts[static_cast<size_t>(Part::kGraphCached)]);
  if (!IsSettled(device) || instant.host.capturing != 0) {
    ++unsettled_;
    return;
  }
  ++settled_;
  // Where threads make arrays beside other things, only the sum is known.
  if (truth_.has_threads) {
    expect("arrays and driver-owned memory", truth.array_charged + truth.driver_bytes,
           static_cast<int64_t>(kinds.array_bytes) + driver);
  } else {
    expect("array memory", truth.array_charged, kinds.array_bytes);
    expect("driver-owned memory", truth.driver_bytes, driver);
  }
  expect("the process", static_cast<uint64_t>(truth.device_bytes),
         processes + parts[static_cast<size_t>(Part::kRmInternal)]);
  expect("the device", truth.used, device.total);
}

void Comparison::ComparePools(const Instant& instant) {
  for (const PoolLine& pool : instant.pools) {
    const engine::Segment* segment = nullptr;
    for (const engine::ProcessState& process : ledger_.processes()) {
      if (const uint32_t index = process.pools.Find(pool.handle); index != engine::FlatMap::kNone)
        segment = &ledger_.segments()[index];
    }
    if (instant.host.capturing == 0)
      Expect(instant, pool.device, "reserved of a pool", pool.reserved,
             segment == nullptr ? 0 : static_cast<int64_t>(segment->held));
    Expect(instant, pool.device, "allocations of a pool", pool.allocations,
           segment == nullptr ? 0 : static_cast<int64_t>(segment->live_count));
  }
}

void Comparison::CompareHost(const Instant& instant) {
  HostSums sums;
  for (const engine::ProcessState& process : ledger_.processes()) {
    process.holdings.ForEach([&](uint32_t, const engine::Holding& holding) {
      const auto add = [&](uint64_t& bytes, uint64_t& count) {
        bytes += holding.size;
        ++count;
      };
      if (holding.kind != engine::HoldingKind::kMemory)
        return;
      if (holding.memory == format::MemoryKind::kHostPinned)
        add(sums.pinned_bytes, sums.pinned_count);
      else if (holding.memory == format::MemoryKind::kHostRegistered)
        add(sums.registered_bytes, sums.registered_count);
      else if (holding.memory == format::MemoryKind::kManaged)
        add(sums.managed_bytes, sums.managed_count);
    });
  }
  const auto expect = [&](const char* what, uint64_t expected, uint64_t found) {
    Expect(instant, -2, what, expected, static_cast<int64_t>(found));
  };
  const HostLine& truth = instant.host;
  expect("pinned", truth.pinned_bytes, sums.pinned_bytes);
  expect("pinned allocations", truth.pinned_count, sums.pinned_count);
  expect("registered", truth.registered_bytes, sums.registered_bytes);
  expect("registered ranges", truth.registered_count, sums.registered_count);
  expect("managed", truth.managed_bytes, sums.managed_bytes);
  expect("managed allocations", truth.managed_count, sums.managed_count);
  for (const engine::DeviceState& device : ledger_.devices()) {
    if (device.kind == trace::DeviceKind::kHost)
      expect("host total", truth.pinned_bytes + truth.registered_bytes,
             static_cast<uint64_t>(device.total));
  }
}

// No live block outside of a live segment, nor more blocks than the segment has bytes.
void Comparison::CompareSegments(const Instant& instant) {
  ledger_.segments().ForEach([&](uint32_t index, const engine::Segment& segment) {
    const bool cut = segment.kind == engine::SegmentKind::kAllocation ||
                     segment.kind == engine::SegmentKind::kReservation;
    if (cut && segment.live_bytes > segment.held)
      Complain("instant %" PRIu64 ", after %s: segment %u has blocks of %" PRIu64
               " bytes in %" PRIu64,
               instant.number, instant.call.c_str(), index, segment.live_bytes, segment.held);
  });
}

void Comparison::Compare(const Instant& instant) {
  // What is wrong once stays wrong.
  if (complaints_ != 0)
    return;
  for (const DeviceLine& device : instant.devices)
    CompareDevice(instant, device);
  ComparePools(instant);
  CompareHost(instant);
  CompareSegments(instant);
}

void Comparison::Finish() {
  ledger_.Finish();
  const engine::Violations& violations = ledger_.violations();
  if (violations.freed_twice != 0)
    Complain("freed twice: %" PRIu64 ", %s", violations.freed_twice,
             violations.first_freed_twice.c_str());
  if (violations.outside_segment != 0)
    Complain("outside of a segment: %" PRIu64 ", %s", violations.outside_segment,
             violations.first_outside_segment.c_str());
  if (violations.overfull_segments != 0)
    Complain("overfull: %" PRIu64 ", %s", violations.overfull_segments,
             violations.first_overfull.c_str());
  if (violations.sums != 0)
    Complain("sums: %" PRIu64 ", %s", violations.sums, violations.first_sum.c_str());
  for (const trace::Loss* loss : {&ledger_.unknown_frees(), &ledger_.double_allocs()}) {
    if (loss->count != 0)
      Complain("loss: %s, %" PRIu64, loss->name.c_str(), loss->count);
  }
  if (compared_ < truth_.instants.size())
    Complain("%zu of %zu instants are in the recording", compared_, truth_.instants.size());
  for (size_t i = 0; i < clear_samples_.size(); ++i) {
    const engine::DeviceState& device = ledger_.devices()[i];
    for (const size_t number : clear_samples_[i]) {
      const engine::DeviceSampleRecord& sample = device.samples[number];
      const int64_t residual = engine::JudgeSample(sample).residual;
      ++samples_;
      samples_with_residual_ += sample.counted && residual != 0 ? 1 : 0;
    }
  }
}

int Main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "differential_compare RECORDING TRUTH\n");
    return 2;
  }
  TruthLog truth;
  if (!ReadTruth(argv[2], &truth)) {
    std::fprintf(stderr, "%s: cannot be read\n", argv[2]);
    return 2;
  }
  trace::OpenOptions options;
  options.native_names = false;
  auto recording = trace::OpenTrace(argv[1], options);
  if (!recording) {
    std::fprintf(stderr, "%s\n", recording.status().message().c_str());
    return 2;
  }
  Comparison comparison(**recording, truth);
  const auto status = (*recording)->ForEachEvent([&](std::span<const trace::Event> events) {
    comparison.Apply(events);
  });
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return 2;
  }
  comparison.Finish();
  comparison.PrintCounts();
  return comparison.right() ? 0 : 1;
}

}  // namespace
}  // namespace differential

int main(int argc, char** argv) {
  return differential::Main(argc, argv);
}
