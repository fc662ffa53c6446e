// SPDX-License-Identifier: Apache-2.0
// Compares what the batch pricing says of a recording with the stand-in driver's books, and prints
// how its samples fare beside those of the streaming ledger:
// price_check RECORDING [TRUTH] [--steps].
//
// Exit status: 0 it is right, 1 it is not (what is wrong is printed), 2 it could not look.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "differential/price_input.h"
#include "differential/truth_reader.h"
#include "engine/analysis/residual.h"

namespace differential {
namespace {

namespace engine = vramscope::engine;
namespace trace = vramscope::trace;
namespace format = vramscope::format;
namespace price = vramscope::resolve::price;

constexpr size_t kMaxComplaints = 12;

// The ledger of one device at ascending times, by the result of the pricing.
class Replay {
 public:
  Replay(const price::DeviceInput& input, const price::DevicePrices& prices)
      : input_(input), prices_(prices), bytes_(input.processes.size()) {}

  void GoTo(int64_t time_ns) {
    for (; move_ < input_.moves.size() && input_.moves[move_].when.time_ns <= time_ns; ++move_) {
      const price::Move& move = input_.moves[move_];
      int64_t bytes = move.bytes;
      if (move.array != price::kNone) {
        bytes = (bytes < 0 ? -1 : 1) * prices_.arrays[move.array].bytes;
        arrays += bytes;
      }
      bytes_[move.process] += bytes;
    }
    for (; step_ < prices_.steps.size() && prices_.steps[step_].when.time_ns <= time_ns; ++step_) {
      const price::Step& step = prices_.steps[step_];
      const price::Counter& counter = prices_.counters[step.counter];
      const bool is_driver =
          counter.part >= format::Part::kContext && counter.part <= format::Part::kOtherDriver;
      if (is_driver || counter.part == format::Part::kRmInternal)
        driver += step.bytes;
      (counter.process == price::kNone ? of_nobody : bytes_[counter.process]) += step.bytes;
    }
    total = of_nobody;
    for (uint32_t process = 0; process < bytes_.size(); ++process) {
      const bool away = std::any_of(
          prices_.checkpointed.begin(), prices_.checkpointed.end(), [&](const auto& span) {
            return span.process == process && span.begin_ns <= time_ns && time_ns < span.end_ns;
          });
      total += away ? 0 : bytes_[process];
    }
  }
  bool IsSettled(int64_t time_ns) const {
    return std::none_of(prices_.unsettled.begin(), prices_.unsettled.end(), [&](const auto& span) {
      return span.begin_ns <= time_ns && time_ns < span.end_ns;
    });
  }

  int64_t total = 0;
  int64_t driver = 0;
  int64_t arrays = 0;
  int64_t of_nobody = 0;

 private:
  const price::DeviceInput& input_;
  const price::DevicePrices& prices_;
  std::vector<int64_t> bytes_;
  size_t move_ = 0;
  size_t step_ = 0;
};

class Check {
 public:
  Check(trace::Trace& recording, const TruthLog& truth)
      : recording_(recording), truth_(truth), inputs_(recording), ledger_(recording, {}) {}

  void Apply(std::span<const trace::Event> events) {
    ledger_.Apply(events);
    for (const trace::Event& event : events) {
      inputs_.Apply(event);
      if (event.kind == trace::EventKind::kName && event.address > kInstantBase &&
          event.address - kInstantBase <= truth_.instants.size())
        instants_.emplace_back(event.address - kInstantBase - 1, event.time_ns);
    }
  }
  bool Finish(bool print_steps) {
    ledger_.Finish();
    for (size_t i = 0; i < recording_.devices().size(); ++i) {
      if (!inputs_.IsGpu(i))
        continue;
      const price::DevicePrices prices = price::PriceDevice(inputs_.devices()[i]);
      if (print_steps)
        PrintSteps(prices);
      CompareInstants(i, prices);
      CompareSamples(i, prices);
    }
    std::printf("%zu of %zu instants priced, %zu device figures settled, %zu not yet known\n",
                instants_.size(), truth_.instants.size(), settled_, unsettled_);
    return complaints_ == 0;
  }

 private:
  void PrintSteps(const price::DevicePrices& prices) const;
  void CompareInstants(size_t device, const price::DevicePrices& prices);
  void CompareSamples(size_t device, const price::DevicePrices& prices) const;
  void Expect(const Instant& instant, const char* what, uint64_t expected, int64_t found);

  trace::Trace& recording_;
  const TruthLog& truth_;
  PriceInputs inputs_;
  engine::Ledger ledger_;
  std::vector<std::pair<size_t, int64_t>> instants_;  // number, time
  size_t settled_ = 0;
  size_t unsettled_ = 0;
  size_t complaints_ = 0;
};

void Check::Expect(const Instant& instant, const char* what, uint64_t expected, int64_t found) {
  const int64_t difference = found - static_cast<int64_t>(expected);
  if (difference == 0 || ++complaints_ > kMaxComplaints)
    return;
  std::printf(
      "operation %" PRIu64 " (%s), instant %" PRIu64
      ", after %s -> %d: device, priced, %s: expected %" PRIu64 ", found %" PRId64 " (%+.2f MiB)\n",
      instant.operation, instant.operation_name.c_str(), instant.number, instant.call.c_str(),
      instant.result, what, expected, found, static_cast<double>(difference) / (1 << 20));
}

void Check::PrintSteps(const price::DevicePrices& prices) const {
  for (const price::Step& step : prices.steps) {
    const price::Counter& counter = prices.counters[step.counter];
    std::printf("%" PRId64 " [%" PRId64 ", %" PRId64 "] %s: %s %+.3f MiB\n", step.when.time_ns,
                step.when.begin_ns, step.when.end_ns, format::PartName(counter.part),
                counter.trigger.c_str(), static_cast<double>(step.bytes) / (1 << 20));
  }
}

void Check::CompareInstants(size_t device, const price::DevicePrices& prices) {
  Replay replay(inputs_.devices()[device], prices);
  for (const auto& [number, time_ns] : instants_) {
    const Instant& instant = truth_.instants[number];
    replay.GoTo(time_ns);
    for (const DeviceLine& line : instant.devices) {
      if (line.device != recording_.devices()[device].index)
        continue;
      if (!replay.IsSettled(time_ns) || instant.host.capturing != 0) {
        ++unsettled_;
        continue;
      }
      ++settled_;
      // Where threads make arrays beside other things, only the sum is known.
      if (truth_.has_threads) {
        Expect(instant, "arrays and driver-owned memory", line.array_charged + line.driver_bytes,
               replay.arrays + replay.driver);
      } else {
        Expect(instant, "array memory", line.array_charged, replay.arrays);
        Expect(instant, "driver-owned memory", line.driver_bytes, replay.driver);
      }
      Expect(instant, "the device", line.used, replay.total);
    }
  }
}

void Check::CompareSamples(size_t device, const price::DevicePrices& prices) const {
  struct Counts {
    size_t residual = 0;
    size_t in_transit = 0;
    void Add(const engine::DeviceSampleRecord& sample) {
      const engine::SampleVerdict verdict = engine::JudgeSample(sample);
      residual += verdict.residual != 0 ? 1 : 0;
      in_transit += verdict.explained_by_transit ? 1 : 0;
    }
  };
  const std::vector<engine::DeviceSampleRecord>& streamed = ledger_.devices()[device].samples;
  Counts now;
  Counts before;
  size_t counted = 0;
  for (size_t i = 0; i < std::min(prices.samples.size(), streamed.size()); ++i) {
    const price::SampleResult& sample = prices.samples[i];
    if (!sample.counted)
      continue;
    engine::DeviceSampleRecord record = streamed[i];
    before.Add(record);
    record.ledger = sample.ledger_bytes;
    record.low = sample.low_bytes;
    record.high = sample.high_bytes;
    now.Add(record);
    ++counted;
  }
  std::printf("device %zu: %zu samples; residual %zu (before %zu); in transit %zu (before %zu)\n",
              device, counted, now.residual, before.residual, now.in_transit, before.in_transit);
}

int Main(int argc, char** argv) {
  std::vector<const char*> files;
  bool print_steps = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--steps") == 0)
      print_steps = true;
    else
      files.push_back(argv[i]);
  }
  if (files.empty() || files.size() > 2) {
    std::fprintf(stderr, "price_check RECORDING [TRUTH] [--steps]\n");
    return 2;
  }
  TruthLog truth;
  if (files.size() == 2 && !ReadTruth(files[1], &truth)) {
    std::fprintf(stderr, "%s: cannot be read\n", files[1]);
    return 2;
  }
  trace::OpenOptions options;
  options.native_names = false;
  auto recording = trace::OpenTrace(files[0], options);
  if (!recording) {
    std::fprintf(stderr, "%s\n", recording.status().message().c_str());
    return 2;
  }
  Check check(**recording, truth);
  const auto status = (*recording)->ForEachEvent([&](std::span<const trace::Event> events) {
    check.Apply(events);
  });
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return 2;
  }
  return check.Finish(print_steps) ? 0 : 1;
}

}  // namespace
}  // namespace differential

int main(int argc, char** argv) {
  return differential::Main(argc, argv);
}
