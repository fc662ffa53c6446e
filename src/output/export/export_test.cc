// SPDX-License-Identifier: Apache-2.0
#include "output/export/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "format/memory_words.h"
#include "output/report_fixture.h"

namespace vramscope::output {
namespace {

using testing::HasSubstr;

class ExportTest : public testing::Test {
 protected:
  ExportTest() {
    const auto gpu = recording_.AddDevice(tables::DeviceKind::kGpu, 3);
    const auto host = recording_.AddDevice(tables::DeviceKind::kHost, -2);
    const auto process = recording_.AddProcess(4711, "python train.py");
    const auto main = recording_.PythonStack({}, "<module>", "/home/u/train.py", 90);
    const auto inner = recording_.PythonStack(main, "f, \"g\"", "/home/u/train.py", 52);
    tables::Tables& tables = recording_.edit();
    tables.accounts.push_back({process, gpu, 0, 1000});
    tables.accounts.push_back({tables::ProcessId{}, host, 0, tables::kNever});
    tables::SiteRow block;
    block.account = tables::AccountId{1};
    block.category = format::Category::kActivation;
    block.owner = block.allocator = recording_.Intern("PyTorch");
    block.stack = block.place = inner;
    block.module = recording_.Intern("=h.0");
    tables::SiteRow pinned;
    pinned.account = tables::AccountId{2};
    pinned.part = format::Part::kPinned;
    pinned.category = format::Category::kUnknown;
    pinned.owner = recording_.Intern("application");
    pinned.api = recording_.Intern("cuMemAllocHost_v2");
    tables.sites.push_back(block);
    tables.sites.push_back(pinned);
    Add({.begin_ns = 120,
         .end_ns = 200,
         .alloc_ns = 100,
         .address = 0x7f0000000000,
         .bytes = 512,
         .rounding_bytes = 12,
         .site = tables::SiteId{1}});
    Add({.begin_ns = 150,
         .end_ns = tables::kNever,
         .alloc_ns = 150,
         .address = ~uint64_t{0},
         .bytes = ~uint64_t{0},
         .site = tables::SiteId{2}});
    Add({.begin_ns = 160,
         .end_ns = 1000,
         .alloc_ns = 160,
         .address = 0x7f0000001000,
         .bytes = 1024,
         .site = tables::SiteId{1}});
  }

  void Add(const tables::AllocationRow& row) { EXPECT_TRUE(recording_.Add(row).ok()); }

  std::string Export(util::Status (*write)(const tables::Recording&,
                                           const ExportOptions&,
                                           const ExportSink&)) {
    std::string text;
    const util::Status status = write(recording_, {}, Into(&text));
    EXPECT_TRUE(status.ok()) << status.message();
    return text;
  }
  static ExportSink Into(std::string* text) {
    return [text](std::string_view piece) -> util::Status {
      *text += piece;
      return {};
    };
  }

  FakeRecording recording_;
};

TEST_F(ExportTest, CsvHasEveryDimensionAndNoFormula) {
  const std::string csv = Export(ExportAllocationsCsv);
  EXPECT_EQ(csv, Expected("allocations.csv", csv));
  for (size_t i = 0; i < query::kDimensionCount; ++i) {
    const char* const name = query::DimensionName(static_cast<query::Dimension>(i));
    // Those that have a column of another name.
    const std::string column = name == std::string("process")  ? "pid"
                               : name == std::string("python") ? "stack"
                                                               : name;
    EXPECT_THAT("," + csv.substr(0, csv.find('\r')) + ",", HasSubstr("," + column + ","));
  }
  EXPECT_THAT(csv, HasSubstr(",'=h.0,"));
  EXPECT_THAT(csv, HasSubstr(",end_ns\r\n"));
  // Freed; gone with its process; at the end of the recording still there.
  EXPECT_THAT(csv, HasSubstr(",200\r\n"));
  EXPECT_THAT(csv, HasSubstr(",1000\r\n"));
  EXPECT_THAT(csv, HasSubstr(",\r\n"));
}

TEST_F(ExportTest, Json) {
  const std::string json = Export(ExportAllocationsJson);
  EXPECT_EQ(json, Expected("allocations.json", json));
}

class CollapsedTest : public testing::Test {
 protected:
  // Live from the begin on, with its bytes as its only allocation.
  void Add(const tables::SiteRow& site, uint64_t bytes) {
    tables::Tables& tables = recording_.edit();
    const tables::SiteId id{static_cast<uint32_t>(tables.sites.size())};
    tables.sites.push_back(site);
    EXPECT_TRUE(recording_
                    .Add({.begin_ns = 1,
                          .end_ns = tables::kNever,
                          .alloc_ns = 1,
                          .bytes = bytes,
                          .site = id})
                    .ok());
  }
  tables::SiteRow Site(uint32_t account, std::string_view owner, format::Category category) {
    tables::SiteRow site;
    site.account = tables::AccountId{account};
    site.owner = recording_.Intern(owner);
    site.category = category;
    return site;
  }
  std::string Collapsed() {
    std::string text;
    const util::Status status =
        ExportCollapsed(recording_, {*query::ParseInstant("0")}, [&](std::string_view piece) {
          text += piece;
          return util::Status();
        });
    EXPECT_TRUE(status.ok()) << status.message();
    return text;
  }

  FakeRecording recording_;
  tables::DeviceId gpu_ = recording_.AddDevice(tables::DeviceKind::kGpu, 3);
};

TEST_F(CollapsedTest, StacksOrWhoAskedAndWhatFor) {
  const auto process = recording_.AddProcess(4711, "python a.py");
  recording_.edit().accounts.push_back({process, gpu_, 0, 1000});
  recording_.edit().accounts.push_back({{}, gpu_, 0, 1000});
  const auto f = recording_.PythonStack({}, "f", "a.py", 1);
  const auto g = recording_.PythonStack(f, "g", "a.py", 2);
  const auto main = recording_.NativeStack({}, "main", "", 0, "/usr/bin/x");
  using format::Category;
  tables::SiteRow site = Site(1, "PyTorch", Category::kUnknown);
  site.stack = g;
  Add(site, 100);
  site.native_stack = main;
  site.module = recording_.Intern("layer");
  Add(site, 11);
  site.stack = {};
  Add(site, 5);
  site.forward_stack = g;
  Add(site, 6);
  site = Site(1, "driver-owned", Category::kDriver);
  site.stack = f;
  Add(site, 7);
  Add(Site(1, "Py;Torch", Category::kCached), 3);
  Add(Site(2, "other processes", Category::kUnknown), 2);
  EXPECT_EQ(Collapsed(),
            "[Py Torch];[cached] 3\n"
            "[other processes] 2\n"
            "a.py:1 in f;[driver] 7\n"
            "a.py:1 in f;a.py:2 in g 111\n"
            "a.py:1 in f;a.py:2 in g;[backward] 6\n"
            "main (x) 5\n");
}

TEST_F(CollapsedTest, BelowEachDeviceAndProcess) {
  const auto host = recording_.AddDevice(tables::DeviceKind::kHost, -2);
  uint32_t account = 0;
  for (const uint32_t pid : {4711u, 4712u}) {
    const auto process = recording_.AddProcess(pid, "python a.py");
    for (const tables::DeviceId device : {gpu_, host}) {
      recording_.edit().accounts.push_back({process, device, 0, 1000});
      tables::SiteRow site = Site(++account, "PyTorch", format::Category::kUnknown);
      site.stack = recording_.PythonStack({}, "f", "a.py", 1);
      Add(site, account);
    }
  }
  EXPECT_EQ(Collapsed(),
            "[gpu3];[python a.py (pid 4711)];a.py:1 in f 1\n"
            "[gpu3];[python a.py (pid 4712)];a.py:1 in f 3\n"
            "[host];[python a.py (pid 4711)];a.py:1 in f 2\n"
            "[host];[python a.py (pid 4712)];a.py:1 in f 4\n");
}

TEST_F(CollapsedTest, WhatALongStackLeavesOutIsCounted) {
  recording_.edit().accounts.push_back({recording_.AddProcess(4711, "python a.py"), gpu_, 0, 1000});
  tables::SiteRow site = Site(1, "PyTorch", format::Category::kUnknown);
  for (int i = 0; i < 600; ++i)
    site.stack = recording_.PythonStack(site.stack, "f", "a.py", 1);
  Add(site, 5);
  const std::string text = Collapsed();
  EXPECT_TRUE(text.starts_with("(88 more frames);a.py:1 in f;a.py:1 in f")) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), ';'), 512);
}

// Each line says a name of 4 KiB again: more than any real recording of its size can.
TEST_F(ExportTest, MoreThanTheRecordingCanHaveSaidIsRefused) {
  tables::Tables& tables = recording_.edit();
  tables.session.path = "a.vram";
  tables.session.file_bytes = 8192;
  tables.session.allocation_count = 20'000;
  tables.sites[1].tag = recording_.Intern(std::string(4096, 'x'));
  for (int i = 0; i < 20'000; ++i)
    Add({.begin_ns = 1, .end_ns = 2, .bytes = 512, .site = tables::SiteId{1}});
  size_t written = 0;
  const ExportFormat& csv = ExportFormats().front();
  const auto sink = [&](std::string_view piece) {
    written += piece.size();
    return util::Status();
  };
  const util::Status status = WriteExport(csv, recording_, {}, sink);
  EXPECT_EQ(status.message(),
            "a.vram: as csv, its 20000 allocations would be larger than 48.0 MiB, which is too "
            "much for a "
            "recording of 8.00 KiB: the file is damaged or malicious");
  EXPECT_LE(written, size_t{48} << 20);
  tables.session.file_bytes = 20'000 * 4;
  EXPECT_TRUE(WriteExport(csv, recording_, {}, sink).ok());
}

TEST_F(ExportTest, AFullDiskEndsIt) {
  for (int i = 0; i < 5000; ++i)
    Add({.begin_ns = 1, .end_ns = 2, .bytes = 512, .site = tables::SiteId{1}});
  size_t pieces = 0;
  const util::Status status = ExportAllocationsJson(recording_, {}, [&](std::string_view) {
    ++pieces;
    return util::Status::Error("out.json: no space left on device");
  });
  EXPECT_EQ(status.message(), "out.json: no space left on device");
  EXPECT_EQ(pieces, 1u);
}

class DamagedRecording : public FakeRecording {
 public:
  util::Status Read(size_t, uint32_t, tables::AllocationFrame*) const override {
    return util::Status::Error("a.vram: damaged");
  }
};

TEST(DamagedExport, IsReported) {
  DamagedRecording recording;
  ASSERT_TRUE(recording.Add({}).ok());
  const util::Status status =
      ExportAllocationsCsv(recording, {}, [](std::string_view) { return util::Status(); });
  EXPECT_EQ(status.message(), "a.vram: damaged");
}

// Names, layers, iterations, failures and notes beyond what a summary takes of each.
TEST(SummaryExport, LongestRank_StaysBelow64KiB) {
  const std::string text(300, 'x');
  FakeRecording recording;
  const auto gpu =
      recording.AddDevice(tables::DeviceKind::kGpu, 0, "GPU-" + std::string(36, 'f'), text);
  const auto process = recording.AddProcess(4'000'000, text, 99'999);
  tables::Tables& tables = recording.edit();
  tables.hosts.push_back({recording.Intern(std::string(64, 'h'))});
  tables.processes[process.value].host =
      tables::HostId{static_cast<uint32_t>(tables.hosts.size() - 1)};
  tables.accounts.push_back({process, gpu, 0, tables::kNever});
  tables.session.begin_wall_ns = 1'795'719'180'954'248'933;
  constexpr uint64_t kBytes = uint64_t{80} << 30;
  for (uint32_t i = 0; i < 400; ++i) {
    tables::SiteRow site;
    site.account = tables::AccountId{1};
    site.category = format::kAllCategories[i % format::kCategoryCount];
    site.module = recording.Intern(std::to_string(i) + text);
    site.place = recording.PythonStack({}, text, text, i);
    tables.sites.push_back(site);
    const tables::SiteId id{static_cast<uint32_t>(tables.sites.size() - 1)};
    ASSERT_TRUE(recording
                    .Add({.begin_ns = 10,
                          .end_ns = tables::kNever,
                          .alloc_ns = 10,
                          .bytes = kBytes,
                          .site = id})
                    .ok());
    tables.iterations.push_back({process, i, 100 * i, 100 * (i + 1)});
    tables.notes.push_back({recording.Intern(std::to_string(i) + text), recording.Intern(text)});
  }
  tables.peaks.push_back({gpu, 20, kBytes, 0});
  tables.out_of_memory.push_back({tables::AccountId{1}, 30'000, kBytes});
  std::string json;
  const auto sink = [&](std::string_view piece) {
    json += piece;
    return util::Status();
  };
  ASSERT_TRUE(ExportSummary(recording, {}, sink).ok());
  EXPECT_THAT(json, HasSubstr("\"iteration\":399"));
  EXPECT_THAT(json, HasSubstr("\"held_bytes\""));
  // Eight rows of growth with places and layers take 4 KiB more.
  EXPECT_LT(json.size(), size_t{60} << 10);
  EXPECT_GT(json.size(), size_t{40} << 10);
}

}  // namespace
}  // namespace vramscope::output
