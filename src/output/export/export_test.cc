// SPDX-License-Identifier: Apache-2.0
#include "output/export/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
    block.category = static_cast<uint8_t>(format::Category::kActivation);
    block.owner = block.allocator = recording_.Intern("PyTorch");
    block.stack = block.place = inner;
    block.module = recording_.Intern("=h.0");
    tables::SiteRow pinned;
    pinned.account = tables::AccountId{2};
    pinned.part = static_cast<uint8_t>(format::Part::kPinned);
    pinned.category = static_cast<uint8_t>(format::Category::kUnknown);
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
  std::string Collapsed() {
    std::string text;
    EXPECT_TRUE(WriteCollapsed(report_, Into(&text)).ok());
    return text;
  }
  static ExportSink Into(std::string* text) {
    return [text](std::string_view piece) -> util::Status {
      *text += piece;
      return {};
    };
  }

  FakeRecording recording_;
  query::Report report_;
};

TEST_F(ExportTest, CsvHasEveryDimensionAndNoFormula) {
  const std::string csv = Export(ExportAllocationsCsv);
  EXPECT_EQ(csv, Expected("allocations.csv", csv));
  for (const char* name : {
#define VRAMSCOPE_DIMENSION(dimension, text) text,
#include "query/dimensions.def"
       }) {
    // Those that have a column of another name.
    const std::string column = name == std::string("process")  ? "pid"
                               : name == std::string("python") ? "stack"
                                                               : name;
    EXPECT_THAT("," + csv.substr(0, csv.find('\r')) + ",", HasSubstr("," + column + ","));
  }
  EXPECT_THAT(csv, HasSubstr(",'=h.0,"));
}

TEST_F(ExportTest, Json) {
  const std::string json = Export(ExportAllocationsJson);
  EXPECT_EQ(json, Expected("allocations.json", json));
}

TEST_F(ExportTest, Collapsed) {
  const auto row = [&](uint32_t device, std::optional<uint32_t> pid, std::vector<std::string> path,
                       uint64_t bytes) {
    report_.rows.push_back({tables::DeviceId{device + 1}, pid, std::move(path), bytes, 1});
  };
  row(0, 4711, {"a.py:1 in f;a.py:2 in g", "(no stack)", "PyTorch", "unknown"}, 100);
  row(0, 4711, {"a.py:1 in f;a.py:2 in g", "main (x)", "PyTorch", "unknown"}, 11);
  row(0, 4711, {"a.py:1 in f", "(no stack)", "driver-owned", "driver"}, 7);
  row(0, 4711, {"(no stack)", "main (x)", "application", "unknown"}, 5);
  row(0, 4711, {"(no stack)", "(no stack)", "Py;Torch", "cached"}, 3);
  row(0, std::nullopt, {"(no stack)", "(no stack)", "other processes", "unknown"}, 2);
  row(0, 4711, {"(no stack)", "(no stack)", "PyTorch", "rounding"}, 0);
  report_.processes = {{.pid = 4711, .command = "python a.py"}};
  EXPECT_EQ(Collapsed(),
            "[Py Torch];[cached] 3\n"
            "[other processes] 2\n"
            "a.py:1 in f;[driver] 7\n"
            "a.py:1 in f;a.py:2 in g 111\n"
            "main (x) 5\n");
  row(0, 4712, {"a.py:1 in f", "(no stack)", "PyTorch", "unknown"}, 1);
  report_.rows.erase(report_.rows.begin() + 1, report_.rows.begin() + 5);
  EXPECT_EQ(Collapsed(),
            "[other processes] 2\n"
            "[pid 4712];a.py:1 in f 1\n"
            "[python a.py (pid 4711)];a.py:1 in f;a.py:2 in g 100\n");
  report_.rows.resize(1);
  EXPECT_EQ(Collapsed(), "a.py:1 in f;a.py:2 in g 100\n");
}

TEST_F(ExportTest, CollapsedBelowEachDevice) {
  report_.devices.resize(2);
  report_.devices[0].device = tables::DeviceId{1};
  report_.devices[0].index = 3;
  report_.devices[1].device = tables::DeviceId{2};
  report_.devices[1].kind = tables::DeviceKind::kHost;
  for (const uint32_t device : {0u, 1u}) {
    report_.rows.push_back(
        {tables::DeviceId{device + 1}, 4711, {"f", "(no stack)", "PyTorch", "unknown"}, 9, 1});
  }
  EXPECT_EQ(Collapsed(), "[gpu3];f 9\n[host];f 9\n");
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

}  // namespace
}  // namespace vramscope::output
