// SPDX-License-Identifier: Apache-2.0
#include "base/memory_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "base/units.h"

namespace vramscope::base {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

class MemoryGroupsTest : public ::testing::Test {
 protected:
  ~MemoryGroupsTest() override { fs::remove_all(root_); }
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
  // Of the groups with a limit, by their paths; what is added only where less than that is free.
  std::map<std::string, uint64_t> Free(uint64_t enough_bytes = UINT64_MAX) {
    MemoryGroups groups;
    groups.Find("self", root_.c_str());
    std::map<std::string, uint64_t> free;
    for (size_t i = 0; i < groups.count(); ++i)
      free[groups.group(i)] = groups.FreeBytes(i, groups.LimitBytes(i), enough_bytes);
    return free;
  }

  const std::string root_ =
      fs::temp_directory_path() / ("memory_groups_test." + std::to_string(getpid()));
};

TEST_F(MemoryGroupsTest, WhereNothingSaysThereIsNoLimit) {
  EXPECT_THAT(Free(), IsEmpty());
  Write("/proc/self/cgroup", "0::/job");
  EXPECT_THAT(Free(), IsEmpty());
  Group2("/job", "max", 5 * kMiB);
  EXPECT_THAT(Free(), IsEmpty());
}

TEST_F(MemoryGroupsTest, CachesAreGivenUp) {
  Write("/proc/self/cgroup", "0::/job");
  Group2("/job", std::to_string(80 * kMiB), 65 * kMiB);
  EXPECT_THAT(Free(), ElementsAre(Pair("/job", 15 * kMiB)));
  Write("/sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 10485760\nfile 20971520");
  EXPECT_THAT(Free(), ElementsAre(Pair("/job", 25 * kMiB)));
  EXPECT_THAT(Free(16 * kMiB), ElementsAre(Pair("/job", 25 * kMiB)));
  EXPECT_THAT(Free(15 * kMiB), ElementsAre(Pair("/job", 15 * kMiB)));
  Group2("/job", std::to_string(80 * kMiB), 95 * kMiB);
  EXPECT_THAT(Free(), ElementsAre(Pair("/job", 0)));
}

TEST_F(MemoryGroupsTest, AGroupAboveHasItsLimitToo) {
  Write("/proc/self/cgroup", "0::/jobs/train/");
  Group2("/jobs/train", std::to_string(90 * kMiB), 10 * kMiB);
  Group2("/jobs", std::to_string(80 * kMiB), 59 * kMiB);
  EXPECT_THAT(Free(), ElementsAre(Pair("/jobs", 21 * kMiB), Pair("/jobs/train", 80 * kMiB)));
}

TEST_F(MemoryGroupsTest, AContainersOwnGroupWherePathsAreTheHosts) {
  Write("/proc/self/cgroup", "0::/kubepods/pod1/container");
  Group2("", std::to_string(8 * kMiB), 5 * kMiB);
  EXPECT_THAT(Free(), ElementsAre(Pair("", 3 * kMiB)));
}

TEST_F(MemoryGroupsTest, Version1) {
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/job\n1:name=memory:/y");
  Group1("", 9223372036854771712u, 99 * kMiB);
  Group1("/job", 80 * kMiB, 65 * kMiB);
  EXPECT_THAT(Free(), ElementsAre(Pair("/job", 15 * kMiB)));
  Write("/sys/fs/cgroup/memory/job/memory.stat",
        "cache 5\ninactive_file 1\ntotal_inactive_file 10485760");
  EXPECT_THAT(Free(), ElementsAre(Pair("/job", 25 * kMiB)));
}

TEST_F(MemoryGroupsTest, TheLimitOfTheMomentCounts) {
  Write("/proc/self/cgroup", "0::/job");
  Group2("/job", std::to_string(80 * kMiB), 50 * kMiB);
  MemoryGroups groups;
  groups.Find("self", root_.c_str());
  ASSERT_EQ(groups.count(), 1u);
  EXPECT_EQ(groups.LimitBytes(0), 80 * kMiB);
  Group2("/job", std::to_string(64 * kMiB), 50 * kMiB);
  EXPECT_EQ(groups.FreeBytes(0, groups.LimitBytes(0)), 14 * kMiB);
  Group2("/job", "max", 50 * kMiB);
  EXPECT_EQ(groups.FreeBytes(0, groups.LimitBytes(0)), UINT64_MAX);
}

TEST_F(MemoryGroupsTest, KillsAreOfItsOwnGroup) {
  MemoryGroups groups;
  Write("/proc/self/cgroup", "0::/jobs/train");
  EXPECT_FALSE(groups.Find("self", root_.c_str()));
  EXPECT_EQ(groups.OutOfMemoryKills(), 0u);
  Write("/sys/fs/cgroup/jobs/memory.events", "low 0\nhigh 0\nmax 9\noom 9\noom_kill 7");
  Write("/sys/fs/cgroup/jobs/train/memory.events", "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1");
  EXPECT_TRUE(groups.Find("self", root_.c_str()));
  EXPECT_EQ(groups.count(), 0u);
  EXPECT_EQ(groups.OutOfMemoryKills(), 1u);
  Write("/proc/self/cgroup", "4:memory:/job");
  Write("/sys/fs/cgroup/memory/job/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 2");
  EXPECT_TRUE(groups.Find("self", root_.c_str()));
  EXPECT_EQ(groups.OutOfMemoryKills(), 2u);
}

TEST_F(MemoryGroupsTest, WhatIsNoListOfGroupsIsPassedOver) {
  Group2("", std::to_string(8 * kMiB), 5 * kMiB);
  for (const char* text : {"", "\n\n", "0", "0:", "0::", "0::x", ":::", "4:memory"}) {
    Write("/proc/self/cgroup", text);
    EXPECT_THAT(Free(), IsEmpty()) << text;
  }
  Write("/proc/self/cgroup", "0::/" + std::string(3000, 'a'));
  EXPECT_THAT(Free(), IsEmpty());
}

class HostMemoryHeadroom : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/tmp/vramscope-host-room-XXXXXX";
    root_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const fs::path file = root_ + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void WriteMeminfo(uint64_t total, uint64_t available) {
    Write("/proc/meminfo", "MemTotal:       " + std::to_string(total / 1024) +
                               " kB\nMemFree:        1 kB\nMemAvailable:   " +
                               std::to_string(available / 1024) + " kB\n");
  }
  uint64_t Bytes() {
    static MemoryGroups groups;
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
}  // namespace vramscope::base
