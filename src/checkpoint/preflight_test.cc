// SPDX-License-Identifier: Apache-2.0

#include "checkpoint/preflight.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/units.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

class HostMemoryTest : public ::testing::Test {
 protected:
  HostMemoryTest() { Write("/proc/meminfo", "MemTotal: 65536 kB\nMemAvailable:   32768 kB\n"); }
  ~HostMemoryTest() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void Group2(const std::string& group, const std::string& max, uint64_t current) {
    Write("/sys/fs/cgroup" + group + "/memory.max", max + "\n");
    Write("/sys/fs/cgroup" + group + "/memory.current", std::to_string(current) + "\n");
  }
  HostMemory Free() { return FreeHostMemory(7, root_); }

  const std::string root_ =
      fs::temp_directory_path() / ("host_memory_test." + std::to_string(getpid()));
};

TEST_F(HostMemoryTest, TheHostsOwnFigure) {
  Write("/proc/7/cgroup", "0::/\n");
  EXPECT_EQ(Free().free_bytes, 32 * kMiB);
  EXPECT_EQ(Free().limited_by, "the host");
}

TEST_F(HostMemoryTest, ALimitAbove) {
  Write("/proc/7/cgroup", "0::/jobs/train\n");
  Group2("/jobs/train", "max", 1 * kMiB);
  Group2("/jobs", std::to_string(20 * kMiB), 12 * kMiB);
  EXPECT_EQ(Free().free_bytes, 8 * kMiB);
  EXPECT_EQ(Free().limited_by, "the memory limit of its cgroup /jobs");
  Write("/sys/fs/cgroup/jobs/memory.stat", "anon 5\ninactive_file 2097152\n");
  EXPECT_EQ(Free().free_bytes, 10 * kMiB);
}

TEST_F(HostMemoryTest, AContainersOwnGroupWherePathsAreTheHosts) {
  Write("/proc/7/cgroup", "0::/kubepods/pod1/container\n");
  Group2("", std::to_string(6 * kMiB), 2 * kMiB);
  EXPECT_EQ(Free().free_bytes, 4 * kMiB);
  EXPECT_EQ(Free().limited_by, "the memory limit of its cgroup /");
}

TEST_F(HostMemoryTest, Version1) {
  Write("/proc/7/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/job\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(3 * kMiB) + "\n");
  Write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(5 * kMiB) + "\n");
  EXPECT_EQ(Free().free_bytes, 0u);
}

TEST_F(HostMemoryTest, NothingSays) {
  fs::remove(root_ + "/proc/meminfo");
  EXPECT_EQ(Free().free_bytes, UINT64_MAX);
}

}  // namespace

}  // namespace vramscope::cli
