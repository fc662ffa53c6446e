// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trace/testing/live_file_builder.h"
#include "trace/trace.h"
#include "util/owned_file.h"

namespace vramscope::trace {

// Writes live files into a directory of its own and reads them.
class LiveTraceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() /
                 ("vramscope_live_test_" + std::to_string(getpid()));
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

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

  std::filesystem::path directory_;
};

inline format::BlockAlloc CpuAlloc(uint64_t time,
                                   uint64_t address,
                                   uint64_t size,
                                   uint64_t stack = 0) {
  return {.time = kStart + time, .address = address, .size = size, .device = -1, .stack = stack};
}
inline format::BlockFree CpuFree(uint64_t time, uint64_t address) {
  return {.time = kStart + time, .address = address, .size = 0, .device = -1};
}

}  // namespace vramscope::trace
