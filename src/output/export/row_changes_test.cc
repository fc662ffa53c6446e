// SPDX-License-Identifier: Apache-2.0
#include "output/export/row_changes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "output/report_fixture.h"

namespace vramscope::output {
namespace {

class RowChangesTest : public testing::Test {
 protected:
  RowChangesTest() {
    tables::Tables& tables = recording_.edit();
    const auto gpu = recording_.AddDevice(tables::DeviceKind::kGpu, 0);
    for (uint32_t i = 1; i <= 2; ++i) {
      tables.accounts.push_back({recording_.AddProcess(i, "python"), gpu, 0, tables::kNever});
      tables::SiteRow site;
      site.account = tables::AccountId{i};
      tables.sites.push_back(site);
    }
  }

  void Add(int64_t begin_ns, int64_t end_ns, int64_t alloc_ns, uint64_t address, uint32_t site) {
    EXPECT_TRUE(recording_
                    .Add({.begin_ns = begin_ns,
                          .end_ns = end_ns,
                          .alloc_ns = alloc_ns,
                          .address = address,
                          .bytes = 512,
                          .site = tables::SiteId{site}})
                    .ok());
    ++recording_.edit().session.allocation_count;
  }

  std::vector<std::string> Changes(int64_t until_ns, uint64_t window_rows) {
    const query::Instants until = query::AllAt(recording_.tables(), until_ns);
    RowChanges changes(recording_, until, {false, true, false}, window_rows);
    std::vector<std::string> found;
    windows_ = 0;
    for (;; ++windows_) {
      const auto window = changes.Next();
      EXPECT_TRUE(window.ok());
      if (window->empty())
        return found;
      for (const RowChange& change : *window) {
        found.push_back(std::to_string(change.time_ns) + " " +
                        "-=+*>"[static_cast<int>(change.kind)] +
                        std::to_string(change.row.address));
      }
    }
  }

  FakeRecording recording_;
  int windows_ = 0;
};

TEST_F(RowChangesTest, WindowsDoNotMatter) {
  for (int64_t i = 0; i < 1000; ++i)
    Add(10 * i, 10 * i + 5 + 1000 * (i % 7), 10 * i, static_cast<uint64_t>(i + 1), 1 + i % 2);
  const std::vector<std::string> at_once = Changes(tables::kNever - 1, 1 << 20);
  EXPECT_EQ(windows_, 1);
  EXPECT_EQ(at_once.size(), 1000u);
  EXPECT_EQ(Changes(tables::kNever - 1, 10), at_once);
  EXPECT_GT(windows_, 20);
  EXPECT_EQ(Changes(17, 1 << 20), (std::vector<std::string>{"0 *1", "5 -1"}));
}

TEST_F(RowChangesTest, WhatChangesIsNotFreed) {
  Add(10, 20, 10, 7, 1);
  Add(20, 30, 10, 7, 1);
  Add(30, tables::kNever, 30, 7, 1);
  EXPECT_EQ(Changes(100, 1 << 20), (std::vector<std::string>{"10 *7", "20 >7", "30 -7", "30 *7"}));
}

}  // namespace
}  // namespace vramscope::output
