// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "probe/hooks/cuda/state/overflow.h"

namespace vramscope::probe::cuda {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

class HostMemoryHeadroom : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/tmp/vramscope-host-room-XXXXXX";
    root_ = mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void WriteMeminfo(uint64_t total, uint64_t available) {
    Write("/proc/meminfo", "MemTotal:       " + std::to_string(total / 1024) +
                               " kB\nMemFree:        1 kB\nMemAvailable:   " +
                               std::to_string(available / 1024) + " kB\n");
  }
  uint64_t Bytes() {
    static base::MemoryGroups groups;
    groups.Find("self", root_.c_str());
    return HostMemoryHeadroomBytes(groups, root_.c_str());
  }

  std::string root_;
};

TEST_F(HostMemoryHeadroom, IsWhatTheMachineHasLessASixteenth) {
  WriteMeminfo(64 * kGiB, 20 * kGiB);
  EXPECT_EQ(Bytes(), 16 * kGiB);
  WriteMeminfo(64 * kGiB, 3 * kGiB);
  EXPECT_EQ(Bytes(), 0u);
}

TEST_F(HostMemoryHeadroom, StaysWithinTheLimitOfTheControlGroup) {
  WriteMeminfo(256 * kGiB, 200 * kGiB);
  Write("/proc/self/cgroup", "0::/job\n");
  Write("/sys/fs/cgroup/job/memory.max", std::to_string(32 * kGiB) + "\n");
  Write("/sys/fs/cgroup/job/memory.current", std::to_string(10 * kGiB) + "\n");
  Write("/sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file " + std::to_string(kGiB) + "\n");
  EXPECT_EQ(Bytes(), 21 * kGiB);
}

TEST_F(HostMemoryHeadroom, IsNoneWhereNothingSays) {
  EXPECT_EQ(Bytes(), 0u);
}

}  // namespace
}  // namespace vramscope::probe::cuda
