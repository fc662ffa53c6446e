// SPDX-License-Identifier: Apache-2.0
#include "probe/sink/memory_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace vramscope::probe {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kUnit = 16 << 20;  // a quarter of 8 of them is the least that stays free

class MemoryLimitTest : public ::testing::Test {
 protected:
  ~MemoryLimitTest() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }
  void Group2(const std::string& group, const std::string& max, uint64_t current) {
    Write("/sys/fs/cgroup" + group + "/memory.max", max);
    Write("/sys/fs/cgroup" + group + "/memory.current", std::to_string(current));
  }
  void Group1(const std::string& group, uint64_t limit, uint64_t usage) {
    const std::string folder = "/sys/fs/cgroup/memory" + group;
    Write(folder + "/memory.limit_in_bytes", std::to_string(limit));
    Write(folder + "/memory.usage_in_bytes", std::to_string(usage));
  }
  bool HasRoomFor(uint64_t size_bytes) {
    MemoryLimit limit;
    limit.Find(root_.c_str());
    return limit.HasRoomFor(size_bytes);
  }

  const std::string root_ =
      fs::temp_directory_path() / ("memory_limit_test." + std::to_string(getpid()));
};

TEST_F(MemoryLimitTest, WhereNothingSaysThereIsRoom) {
  EXPECT_TRUE(HasRoomFor(1 << 30));
  Write("/proc/self/cgroup", "0::/job");
  EXPECT_TRUE(HasRoomFor(1 << 30));
  Group2("/job", "max", 5 * kUnit);
  EXPECT_TRUE(HasRoomFor(1 << 30));
}

TEST_F(MemoryLimitTest, AQuarterStaysFree) {
  Write("/proc/self/cgroup", "0::/job");
  Group2("/job", std::to_string(80 * kUnit), 50 * kUnit);
  EXPECT_TRUE(HasRoomFor(10 * kUnit));
  EXPECT_FALSE(HasRoomFor(10 * kUnit + 1));
}

TEST_F(MemoryLimitTest, OfASmallLimitMoreStaysFree) {
  Write("/proc/self/cgroup", "0::/job");
  Group2("/job", std::to_string(64 << 20), 31 << 20);
  EXPECT_TRUE(HasRoomFor(1 << 20));
  EXPECT_FALSE(HasRoomFor(2 << 20));
}

TEST_F(MemoryLimitTest, CachesAreGivenUp) {
  Write("/proc/self/cgroup", "0::/job");
  Group2("/job", std::to_string(80 * kUnit), 65 * kUnit);
  EXPECT_FALSE(HasRoomFor(5 * kUnit));
  Write("/sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 167772160\nfile 335544320");
  EXPECT_TRUE(HasRoomFor(5 * kUnit));
  EXPECT_FALSE(HasRoomFor(5 * kUnit + 1));
}

TEST_F(MemoryLimitTest, AGroupAboveHasItsLimitToo) {
  Write("/proc/self/cgroup", "0::/jobs/train/");
  Group2("/jobs/train", "max", 1 * kUnit);
  Group2("/jobs", std::to_string(80 * kUnit), 59 * kUnit);
  EXPECT_TRUE(HasRoomFor(1 * kUnit));
  EXPECT_FALSE(HasRoomFor(2 * kUnit));
}

TEST_F(MemoryLimitTest, AContainersOwnGroupWherePathsAreTheHosts) {
  Write("/proc/self/cgroup", "0::/kubepods/pod1/container");
  Group2("", std::to_string(8 * kUnit), 5 * kUnit);
  EXPECT_TRUE(HasRoomFor(1 * kUnit));
  EXPECT_FALSE(HasRoomFor(2 * kUnit));
}

TEST_F(MemoryLimitTest, Version1) {
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/job\n1:name=memory:/y");
  Group1("", 9223372036854771712u, 99 * kUnit);
  Group1("/job", 80 * kUnit, 65 * kUnit);
  EXPECT_FALSE(HasRoomFor(5 * kUnit));
  Write("/sys/fs/cgroup/memory/job/memory.stat",
        "cache 5\ninactive_file 1\ntotal_inactive_file 167772160");
  EXPECT_TRUE(HasRoomFor(5 * kUnit));
}

TEST_F(MemoryLimitTest, TheLimitOfTheMomentCounts) {
  Write("/proc/self/cgroup", "0::/job");
  Group2("/job", std::to_string(80 * kUnit), 50 * kUnit);
  MemoryLimit limit;
  limit.Find(root_.c_str());
  EXPECT_TRUE(limit.HasRoomFor(kUnit));
  Group2("/job", std::to_string(64 * kUnit), 50 * kUnit);
  EXPECT_FALSE(limit.HasRoomFor(kUnit));
  Group2("/job", "max", 50 * kUnit);
  EXPECT_TRUE(limit.HasRoomFor(kUnit));
}

TEST_F(MemoryLimitTest, WhatIsNoListOfGroupsIsPassedOver) {
  for (const char* text : {"", "\n\n", "0", "0:", "0::", "0::x", ":::", "4:memory", "0::/\0x"}) {
    Write("/proc/self/cgroup", text);
    EXPECT_TRUE(HasRoomFor(kUnit)) << text;
  }
  Write("/proc/self/cgroup", "0::/" + std::string(3000, 'a'));
  EXPECT_TRUE(HasRoomFor(kUnit));
}

}  // namespace
}  // namespace vramscope::probe
