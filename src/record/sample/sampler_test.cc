// SPDX-License-Identifier: Apache-2.0
#include "record/sample/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "format/decoder.h"
#include "util/file.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

constexpr int64_t kMs = 1'000'000;

// Feeds `figures`, one reading every 10 ms from 10 ms on, and returns what was written: (ms, used).
std::vector<std::pair<int64_t, uint64_t>> Written(const std::vector<uint64_t>& figures) {
  SampleFilter filter(100 * kMs);
  std::vector<std::pair<int64_t, uint64_t>> written;
  const auto write = [&written](const format::DeviceSample& sample) {
    written.emplace_back(static_cast<int64_t>(sample.begin) / kMs, sample.used);
  };
  for (size_t i = 0; i < figures.size(); ++i) {
    format::DeviceSample sample;
    sample.begin = (i + 1) * 10 * kMs;
    sample.used = figures[i];
    filter.Add(sample, write);
  }
  filter.Flush(write);
  return written;
}

TEST(SampleFilter, KeepsTheLastReadingBeforeAChange) {
  EXPECT_THAT(Written({5, 5, 5, 5, 9, 9, 9}),
              ElementsAre(Pair(10, 5), Pair(40, 5), Pair(50, 9), Pair(70, 9)));
}

TEST(SampleFilter, WritesEveryChange) {
  EXPECT_THAT(Written({5, 6, 5, 6}),
              ElementsAre(Pair(10, 5), Pair(20, 6), Pair(30, 5), Pair(40, 6)));
}

TEST(SampleFilter, WritesAnUnchangedFigureEveryHundredMilliseconds) {
  EXPECT_THAT(Written(std::vector<uint64_t>(25, 7)),
              ElementsAre(Pair(10, 7), Pair(110, 7), Pair(210, 7), Pair(250, 7)));
}

TEST(SampleFilter, CountsEveryReading) {
  const std::vector<uint64_t> figures = {5, 5, 5, 9, 9, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7};
  SampleFilter filter(100 * kMs);
  uint64_t readings = 0;
  const auto count = [&readings](const format::DeviceSample& sample) {
    readings += 1 + sample.repeats;
  };
  for (size_t i = 0; i < figures.size(); ++i) {
    format::DeviceSample sample;
    sample.begin = (i + 1) * 10 * kMs;
    sample.used = figures[i];
    filter.Add(sample, count);
  }
  filter.Flush(count);
  EXPECT_EQ(readings, figures.size());
}

TEST(ProcessQueryPacer, AsksOnceASecondWhenNothingMoves) {
  ProcessQueryPacer pacer;
  EXPECT_TRUE(pacer.IsDue(0, 0));
  pacer.Queried(0, 10'000, 0);
  EXPECT_FALSE(pacer.IsDue(999 * kMs, 0));
  EXPECT_TRUE(pacer.IsDue(1000 * kMs, 0));
}

TEST(ProcessQueryPacer, AsksSoonAfterALargeMoveButAtMostFiveTimesASecond) {
  ProcessQueryPacer pacer;
  pacer.Queried(0, 10'000, 1 << 30);
  EXPECT_FALSE(pacer.IsDue(199 * kMs, 0));
  EXPECT_TRUE(pacer.IsDue(200 * kMs, 0));
  EXPECT_TRUE(pacer.IsDue(200 * kMs, 2u << 30));
  EXPECT_FALSE(pacer.IsDue(200 * kMs, (1 << 30) + (1 << 20)));
}

TEST(ProcessQueryPacer, SpacesSlowCallsOut) {
  ProcessQueryPacer pacer;
  pacer.Queried(0, 5 * kMs, 0);
  EXPECT_FALSE(pacer.IsDue(1999 * kMs, 0));
  EXPECT_TRUE(pacer.IsDue(2000 * kMs, 0));
}

TEST(SamplingPace, TimesThatHavePassedAreLeftOut) {
  SamplingPace pace;
  pace.Add(10, 1000);
  EXPECT_EQ(pace.Next(500, 1000), 1u);
  EXPECT_EQ(pace.Next(1000, 1000), 1u) << "just in time for the next one";
  pace.Add(2500, 1000);
  EXPECT_EQ(pace.Next(2600, 1000), 3u);
  EXPECT_EQ(pace.readings, 2u);
  EXPECT_EQ(pace.late, 1u);
  EXPECT_EQ(pace.left_out, 2u);
  EXPECT_EQ(pace.latest_ns, 2500);
}

TEST(SampleFilter, ALateReadingAndTheOneBeforeItAreWritten) {
  SampleFilter filter(100 * kMs);
  std::vector<uint64_t> written;
  const auto write = [&](const format::DeviceSample& sample) {
    written.push_back(sample.begin / kMs);
  };
  const auto at = [](int64_t ms) {
    format::DeviceSample sample;
    sample.begin = static_cast<uint64_t>(ms * kMs);
    sample.used = 7;
    return sample;
  };
  filter.Add(at(1), write);
  filter.Add(at(2), write);
  filter.AddLate(at(9), write);
  filter.Add(at(10), write);
  EXPECT_THAT(written, ElementsAre(1, 2, 9));
}

// One GPU whose figure is set by the test.
class FakeMonitor : public GpuMonitor {
 public:
  FakeMonitor() {
    gpus_.push_back({.index = 3, .uuid = "GPU-1", .name = "Test", .total_bytes = 1000});
  }
  const std::vector<Gpu>& gpus() const override { return gpus_; }
  std::optional<NvmlMemory> ReadMemory(size_t) override {
    ++reads;
    return NvmlMemory{.total_bytes = 1000, .used_bytes = used};
  }
  bool ReadProcesses(size_t, std::vector<NvmlProcess>* processes) override {
    const uint64_t now = used;
    *processes = {{.pid = kListed, .used_bytes = now}};
    if (reads < list_until_read) {
      processes->push_back({.pid = static_cast<uint32_t>(getpid()), .used_bytes = now});
      processes->push_back({.pid = kNobody, .used_bytes = now});
    }
    listed = now;
    return true;
  }
  static constexpr uint32_t kListed = 77;
  static constexpr uint32_t kNobody = 1 << 30;
  std::atomic<uint64_t> used{100};
  std::atomic<uint64_t> listed{0};  // what the last list of processes said
  std::atomic<int> reads{0};
  std::atomic<int> list_until_read{0};

 private:
  std::vector<Gpu> gpus_;
};

struct Recorded {
  std::vector<uint64_t> device_used;
  int devices = 0;
  std::map<uint32_t, std::vector<uint64_t>> processes;  // used, by pid
};

Recorded Decode(const std::string& path) {
  Recorded recorded;
  const util::Result<std::string> bytes = util::ReadFile(path, 64 << 20);
  EXPECT_TRUE(bytes.ok());
  format::ChunkHeader chunk{};
  std::memcpy(static_cast<void*>(&chunk), bytes->data() + format::kPageBytes, sizeof chunk);
  const auto* cursor =
      reinterpret_cast<const uint8_t*>(bytes->data() + format::kPageBytes + sizeof chunk);
  const uint8_t* const end = cursor + chunk.committed_bytes;
  format::DeltaState delta{.time = chunk.base_ticks, .address = 0};
  format::RawRecord raw;
  while (format::NextRecord(&cursor, end, &raw)) {
    if (raw.type == format::Device::kType)
      ++recorded.devices;
    if (raw.type == format::ProcessSample::kType) {
      format::ProcessSample sample;
      EXPECT_TRUE(format::Decode(raw, &delta, &sample));
      EXPECT_EQ(sample.device, 3);
      EXPECT_GE(sample.end, sample.begin);
      recorded.processes[static_cast<uint32_t>(sample.pid)].push_back(sample.used);
    }
    if (raw.type == format::DeviceSample::kType) {
      format::DeviceSample sample;
      EXPECT_TRUE(format::Decode(raw, &delta, &sample));
      recorded.device_used.push_back(sample.used);
    }
  }
  return recorded;
}

TEST(Sampler, HasTwoSamplesWhenStartReturnsAndOneAfterStop) {
  const std::string path = testing::TempDir() + "sampler_test.vrl";
  std::filesystem::remove(path);
  auto file = LiveFileWriter::Create(util::CreateFile(path), {});
  ASSERT_TRUE(file.ok()) << file.status().message();
  FakeMonitor monitor;
  Sampler sampler(monitor, **file, {});
  sampler.Start();
  EXPECT_GE(monitor.reads, 2);
  EXPECT_THAT(Decode(path).device_used, testing::SizeIs(testing::Ge(2u)));
  const int reads = monitor.reads;
  while (monitor.reads < reads + 3)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  monitor.used = 250;
  sampler.Stop();
  const Recorded recorded = Decode(path);
  EXPECT_EQ(recorded.devices, 1);
  EXPECT_THAT(recorded.processes, ElementsAre(Pair(FakeMonitor::kListed, Not(IsEmpty()))));
  EXPECT_EQ(recorded.device_used.front(), 100u);
  EXPECT_EQ(recorded.device_used.back(), 250u);
  std::filesystem::remove(path);
}

TEST(Sampler, SaysOnceThatAProcessLeftTheList) {
  const std::string path = testing::TempDir() + "sampler_list_test.vrl";
  std::filesystem::remove(path);
  auto file = LiveFileWriter::Create(util::CreateFile(path), {});
  ASSERT_TRUE(file.ok()) << file.status().message();
  FakeMonitor monitor;
  monitor.list_until_read = 3;
  Sampler sampler(monitor, **file, {});
  sampler.Start();
  // Each large move asks for a list.
  for (const uint64_t used : {uint64_t{1} << 30, uint64_t{2} << 30, uint64_t{3} << 30}) {
    monitor.used = used;
    while (monitor.listed != used)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  sampler.Stop();
  const auto processes = Decode(path).processes;
  EXPECT_THAT(processes.at(FakeMonitor::kListed), Contains(uint64_t{3} << 30));
  EXPECT_THAT(processes.at(FakeMonitor::kNobody), Not(Contains(0)));
  const std::vector<uint64_t>& own = processes.at(static_cast<uint32_t>(getpid()));
  EXPECT_EQ(std::count(own.begin(), own.end(), 0), 1);
  EXPECT_EQ(own.back(), 0u);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace vramscope::cli
