// SPDX-License-Identifier: Apache-2.0
#include "report/export.h"

#include <gtest/gtest.h>

#include "report/fake_analysis.h"

namespace vramscope::report {
namespace {

class ExportTest : public testing::Test {
 protected:
  ExportTest() {
    analysis_.trace_.devices() = {{trace::DeviceKind::kGpu, 3, "", "", 0},
                                  {trace::DeviceKind::kHost, -2, "", "", 0}};
    analysis_.trace_.processes() = {{.pid = 4711}};
    const auto main = analysis_.trace_.PythonStack({}, "<module>", "/home/u/train.py", 90);
    const auto inner = analysis_.trace_.PythonStack(main, "f, \"g\"", "/home/u/train.py", 52);
    analysis_.paths = {{"PyTorch", "allocated"}, {"application", "pinned"}};
    analysis_.lives = {
        {trace::DeviceId{0}, trace::ProcessId{0}, 0x7f0000000000, 512, 100, 200, inner, {}, 0},
        {trace::DeviceId{1},
         trace::kNoProcess,
         ~uint64_t{0},
         ~uint64_t{0},
         150,
         INT64_MAX,
         {},
         analysis_.trace_.Intern("cuMemAllocHost_v2"),
         1}};
  }

  std::string Export(util::Status (*write)(engine::Analysis&, const ExportSink&)) {
    std::string text;
    const util::Status status = write(analysis_, [&](std::string_view piece) -> util::Status {
      text += piece;
      return {};
    });
    EXPECT_TRUE(status.ok()) << status.message();
    return text;
  }

  FakeAnalysis analysis_;
};

TEST_F(ExportTest, Csv) {
  EXPECT_EQ(Export(ExportLivesCsv),
            "device,pid,address,bytes,alloc_ns,free_ns,api,path,stack\r\n"
            "gpu3,4711,0x7f0000000000,512,100,200,,PyTorch / allocated,"
            "\"train.py:90 in <module>;train.py:52 in f, \"\"g\"\"\"\r\n"
            "host,,0xffffffffffffffff,18446744073709551615,150,,cuMemAllocHost_v2,"
            "application / pinned,\r\n");
}

TEST_F(ExportTest, Json) {
  EXPECT_EQ(Export(ExportLivesJson),
            R"({"device":"gpu3","pid":4711,"address":"0x7f0000000000","bytes":512,"alloc_ns":100,)"
            R"("free_ns":200,"api":"","path":["PyTorch","allocated"],)"
            R"("stack":["train.py:90 in <module>","train.py:52 in f, \"g\""]})"
            "\n"
            R"({"device":"host","pid":null,"address":"0xffffffffffffffff",)"
            R"("bytes":18446744073709551615,"alloc_ns":150,"free_ns":null,)"
            R"("api":"cuMemAllocHost_v2","path":["application","pinned"],"stack":[]})"
            "\n");
}

TEST_F(ExportTest, Collapsed) {
  const auto row = [&](int16_t device, std::optional<uint32_t> pid, std::vector<std::string> path,
                       uint64_t bytes) {
    analysis_.report.rows.push_back({trace::DeviceId{device}, pid, std::move(path), bytes, 1});
  };
  row(0, 4711, {"a.py:1 in f;a.py:2 in g", "(no stack)", "PyTorch", "unknown"}, 100);
  row(0, 4711, {"a.py:1 in f;a.py:2 in g", "main (x)", "PyTorch", "unknown"}, 11);
  row(0, 4711, {"a.py:1 in f", "(no stack)", "driver-owned", "driver"}, 7);
  row(0, 4711, {"(no stack)", "main (x)", "application", "unknown"}, 5);
  row(0, 4711, {"(no stack)", "(no stack)", "Py;Torch", "cached"}, 3);
  row(0, std::nullopt, {"(no stack)", "(no stack)", "other processes", "unknown"}, 2);
  row(0, 4711, {"(no stack)", "(no stack)", "PyTorch", "rounding"}, 0);
  analysis_.report.processes = {{.pid = 4711, .command = "python a.py"}};
  EXPECT_EQ(Export(ExportCollapsed),
            "[Py Torch];[cached] 3\n"
            "[other processes] 2\n"
            "a.py:1 in f;[driver] 7\n"
            "a.py:1 in f;a.py:2 in g 111\n"
            "main (x) 5\n");
  row(0, 4712, {"a.py:1 in f", "(no stack)", "PyTorch", "unknown"}, 1);
  analysis_.report.rows.erase(analysis_.report.rows.begin() + 1, analysis_.report.rows.begin() + 5);
  EXPECT_EQ(Export(ExportCollapsed),
            "[other processes] 2\n"
            "[pid 4712];a.py:1 in f 1\n"
            "[python a.py (pid 4711)];a.py:1 in f;a.py:2 in g 100\n");
  analysis_.report.rows.resize(1);
  EXPECT_EQ(Export(ExportCollapsed), "a.py:1 in f;a.py:2 in g 100\n");
}

TEST_F(ExportTest, CollapsedBelowEachDevice) {
  analysis_.report.devices.resize(2);
  analysis_.report.devices[0].index = 3;
  analysis_.report.devices[1].device = trace::DeviceId{1};
  analysis_.report.devices[1].kind = trace::DeviceKind::kHost;
  for (const int16_t device : {0, 1}) {
    analysis_.report.rows.push_back(
        {trace::DeviceId{device}, 4711, {"f", "(no stack)", "PyTorch", "unknown"}, 9, 1});
  }
  EXPECT_EQ(Export(ExportCollapsed), "[gpu3];f 9\n[host];f 9\n");
}

TEST_F(ExportTest, AFullDiskEndsIt) {
  analysis_.lives.resize(5000, analysis_.lives[0]);
  size_t pieces = 0;
  const util::Status status = ExportLivesJson(analysis_, [&](std::string_view) {
    ++pieces;
    return util::Status::Error("out.json: no space left on device");
  });
  EXPECT_EQ(status.message(), "out.json: no space left on device");
  EXPECT_EQ(pieces, 1u);
}

TEST_F(ExportTest, DamageIsReported) {
  analysis_.failure = util::Status::Error("a.vram: damaged");
  std::string text;
  const util::Status status =
      ExportLivesCsv(analysis_, [&](std::string_view piece) -> util::Status {
        text += piece;
        return {};
      });
  EXPECT_EQ(status.message(), "a.vram: damaged");
  EXPECT_NE(text.find("gpu3"), std::string::npos);
}

}  // namespace
}  // namespace vramscope::report
