// SPDX-License-Identifier: Apache-2.0
#include "output/report_fixture.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/units.h"
#include "query/report/report_parts.h"

namespace vramscope::output {
namespace {

query::ReportRow Row(uint32_t device,
                     std::optional<uint32_t> pid,
                     std::vector<std::string> path,
                     uint64_t bytes,
                     uint64_t count) {
  return {tables::DeviceId{device + 1}, pid, std::move(path), bytes, count};
}

}  // namespace

FakeRecording::FakeRecording() {
  tables::Session& session = tables_.session;
  session.path = "train.vram";
  session.name = "python";
  session.version = "0.1.0";
  session.begin_ns = kStart;
  session.end_ns = kStart + 21'400'000'000;
  session.begin_wall_ns = 1'790'000'000'000'000'000;
  session.finished = true;
  session.event_count = 1'234'567;
  session.file_bytes = 5'926'000;
}

tables::StringId FakeRecording::Intern(std::string_view text) {
  for (uint32_t i = 0; i < tables_.strings.size(); ++i) {
    if (tables_.strings[tables::StringId{i}] == text)
      return tables::StringId{i};
  }
  return tables_.strings.Add(text);
}

tables::StackId FakeRecording::PythonStack(tables::StackId parent,
                                           std::string_view function,
                                           std::string_view file,
                                           uint32_t line) {
  tables::FrameRow frame;
  frame.function = Intern(function);
  frame.file = Intern(file);
  frame.line = line;
  frame.library = file.starts_with('<') || file.find("-packages/") != std::string_view::npos;
  return Push(parent, frame);
}

tables::StackId FakeRecording::NativeStack(tables::StackId parent,
                                           std::string_view function,
                                           std::string_view file,
                                           uint32_t line,
                                           std::string_view image) {
  tables::FrameRow frame;
  frame.kind = tables::FrameKind::kNative;
  frame.function = Intern(function);
  frame.file = Intern(file);
  frame.line = line;
  frame.image = Intern(image);
  frame.library = function == "_start" || image.find(".so") != std::string_view::npos;
  return Push(parent, frame);
}

tables::DeviceId FakeRecording::AddDevice(tables::DeviceKind kind,
                                          int32_t index,
                                          std::string_view uuid,
                                          std::string_view name,
                                          uint64_t total_bytes) {
  tables::DeviceRow row;
  row.kind = kind;
  row.index = index;
  row.uuid = Intern(uuid);
  row.name = Intern(name);
  row.total_bytes = total_bytes;
  tables_.devices.push_back(row);
  return tables::DeviceId{static_cast<uint32_t>(tables_.devices.size() - 1)};
}

tables::ProcessId FakeRecording::AddProcess(uint32_t pid, std::string_view command, int32_t rank) {
  tables::ProcessRow row;
  row.pid = pid;
  row.command = Intern(command);
  row.rank = rank;
  row.wait_status = -1;
  tables_.processes.push_back(row);
  return tables::ProcessId{static_cast<uint32_t>(tables_.processes.size() - 1)};
}

tables::StackId FakeRecording::Push(tables::StackId parent, const tables::FrameRow& frame) {
  tables_.frames.push_back(frame);
  tables_.stacks.push_back(
      {parent, tables::FrameId{static_cast<uint32_t>(tables_.frames.size() - 1)}});
  return tables::StackId{static_cast<uint32_t>(tables_.stacks.size() - 1)};
}

query::Report TrainingReport(FakeRecording& recording) {
  recording.AddProcess(4711, "python examples/train_gpt2.py --steps 20");
  const tables::StackId main = recording.PythonStack({}, "main", "/home/u/gpt/train.py", 90);
  const tables::StackId step =
      recording.PythonStack(main, "Trainer.step", "/home/u/gpt/train.py", 52);
  const tables::StackId call = recording.PythonStack(
      step, "Module._call_impl", "/usr/lib/python3/dist-packages/torch/nn/module.py", 1501);
  const tables::StackId block =
      recording.PythonStack(call, "Block.forward", "/home/u/gpt/model.py", 130);
  const tables::StackId attention =
      recording.PythonStack(block, "Attention.forward", "/home/u/gpt/model.py", 112);
  const tables::StackId linear = recording.PythonStack(
      attention, "Linear.forward", "/usr/lib/python3/dist-packages/torch/nn/linear.py", 116);

  query::Report report;
  query::DeviceReport gpu;
  gpu.device = tables::DeviceId{1};
  gpu.uuid = "GPU-1f2e3d4c";
  gpu.name = "NVIDIA H200";
  gpu.total_bytes = 143'771 * kMiB;
  gpu.at_kind = "peak";
  gpu.at_ns = kStart + 4'213'000'000;
  gpu.at_iteration = 3;
  query::DeviceReport host;
  host.device = tables::DeviceId{2};
  host.index = -2;
  host.kind = tables::DeviceKind::kHost;
  host.name = "host";
  host.at_kind = "peak";
  host.at_ns = kStart + 1'100'000'000;
  report.rows = {
      Row(0, 4711, {"PyTorch", "block", "activation"}, 9120 * kMiB, 512),
      Row(0, 4711, {"PyTorch", "block", "optimizer state"}, 2048 * kMiB, 296),
      Row(0, 4711, {"PyTorch", "block", "parameter"}, 1024 * kMiB, 148),
      Row(0, 4711, {"PyTorch", "block", "gradient"}, 1024 * kMiB, 148),
      Row(0, 4711, {"PyTorch", "cached"}, 610 * kMiB + 512 * 1024, 12),
      Row(0, 4711, {"driver-owned", "context"}, 521 * kMiB, 1),
      Row(0, 4711, {"driver-owned", "code"}, 96 * kMiB, 812),
      Row(0, 4711, {"PyTorch", "block", "workspace"}, 32 * kMiB, 2),
      Row(0, 4711, {"driver-owned", "local memory"}, 24 * kMiB, 1),
      Row(0, 4711, {"PyTorch", "fragmentation"}, 20 * kMiB, 0),
      Row(0, 4711, {"PyTorch", "block", "rounding"}, 300 * 1024, 0),
      Row(0, std::nullopt, {"firmware-reserved"}, 2 * kMiB, 0),
      Row(1, 4711, {"application", "pinned"}, 30 * kMiB, 3),
  };
  for (const query::ReportRow& row : report.rows) {
    (row.device == gpu.device ? gpu : host).ledger_bytes += row.bytes;
  }
  gpu.nvml_bytes = gpu.ledger_bytes + kMiB + 200 * 1024;
  gpu.residual_bytes = static_cast<int64_t>(*gpu.nvml_bytes - gpu.ledger_bytes);
  report.devices = {gpu, host};
  report.processes = {{gpu.device, 4711, std::nullopt, "python examples/train_gpt2.py --steps 20",
                       gpu.ledger_bytes, gpu.ledger_bytes, 0, tables::ProcessId{1}}};
  report.categories = {{gpu.device, "activation", 9120 * kMiB, 512},
                       {gpu.device, "optimizer state", 2048 * kMiB, 296},
                       {gpu.device, "parameter", 1024 * kMiB, 148},
                       {gpu.device, "gradient", 1024 * kMiB, 148},
                       {gpu.device, "driver", 643 * kMiB, 814},
                       {gpu.device, "cached", 610 * kMiB + 512 * 1024, 12},
                       {gpu.device, "workspace", 32 * kMiB, 2},
                       {gpu.device, "fragmentation", 20 * kMiB, 0},
                       {gpu.device, "rounding", 300 * 1024, 0},
                       {host.device, "unknown", 30 * kMiB, 3}};
  for (int i = 0; i < 11; ++i) {
    const std::string name = "transformer.h." + std::to_string(i) + ".attn";
    const uint64_t bytes = (800 - 10 * static_cast<uint64_t>(i)) * kMiB;
    report.top_modules.push_back({gpu.device,
                                  name,
                                  "Attention",
                                  bytes,
                                  14,
                                  {{"activation", bytes - 64 * kMiB}, {"parameter", 64 * kMiB}}});
  }
  report.top_modules.push_back({gpu.device, "lm, \"head\"", "", 96 * kMiB, 1, {}});
  report.layers = query::FoldModules(report.top_modules);
  report.block_bytes = 13'248 * kMiB;
  report.block_bytes_with_category = 13'240 * kMiB;
  report.block_bytes_with_place = 13'248 * kMiB;
  report.losses = {{"frees of unknown allocations", 0, 0}};
  report.invariants = {{"children sum to the parent", true, ""},
                       {"nothing is freed twice", true, ""},
                       {"no live block outside a live segment", true, ""},
                       {"NVML and the rows differ by at most 4 MiB or 0.1 %", true, ""}};
  report.residuals = {{gpu.device, 2140, 9, -3 * static_cast<int64_t>(kMiB), kStart + 900'000'000,
                       kMiB, 641 * kMiB, gpu.ledger_bytes}};
  report.top_lines = {
      {gpu.device, "model.py:112 in forward", "    att = (q @ k.transpose(-2, -1)) * scale",
       6144 * kMiB, 48},
      {gpu.device, "train.py:31 in <module>", "optimizer = torch.optim.AdamW(model.parameters())",
       2048 * kMiB, 296},
      {gpu.device, "model.py:130 in forward", "x = x + self.mlp(self.ln_2(x))", 2048 * kMiB, 96},
      {gpu.device, "a_very_long_module_name_indeed.py:1042 in compute_everything",
       "return everything", 96 * kMiB, 1},
      {host.device, "data.py:7 in load", "batch = batch.pin_memory()", 30 * kMiB, 3}};
  report.top_stacks = {{gpu.device, "model.py:112 in forward", linear, 6144 * kMiB, 48},
                       {gpu.device, "train.py:90 in main", main, 2048 * kMiB, 296},
                       {gpu.device, "", {}, 617 * kMiB, 2}};
  report.top_churn = {{gpu.device, "model.py:112 in forward",
                       "    att = (q @ k.transpose(-2, -1)) * scale", 122'880 * kMiB, 960},
                      {gpu.device, "model.py:130 in forward", "x = x + self.mlp(self.ln_2(x))",
                       40'960 * kMiB, 1920}};
  return report;
}

query::Report TroubledReport(FakeRecording& recording) {
  query::Report report;
  for (int32_t i = 0; i < 4; ++i) {
    const auto pid = static_cast<uint32_t>(100 + i);
    recording.AddProcess(pid, "/usr/bin/python3 /srv/t\x1b[2J.py", i);
    query::DeviceReport gpu;
    gpu.device = tables::DeviceId{static_cast<uint32_t>(i) + 1};
    gpu.index = i;
    gpu.name = "NVIDIA \"B\"\n200";
    gpu.at_kind = "end";
    gpu.at_ns = kStart + 20'000'000'000;
    const uint64_t base = (1000 + static_cast<uint64_t>(i)) * kMiB;
    report.rows.push_back(
        Row(static_cast<uint32_t>(i), pid, {"PyTorch", "a,b", "naïve \xff"}, base, 7));
    report.rows.push_back(
        Row(static_cast<uint32_t>(i), pid, {"NCCL", "communication"}, 100 * kMiB, 2));
    report.rows.push_back(
        Row(static_cast<uint32_t>(i), pid, {"driver-owned", "context"}, 400 * kMiB, 1));
    report.rows.push_back(
        Row(static_cast<uint32_t>(i), 99, {"driver-owned", "context"}, 350 * kMiB, 1));
    report.rows.push_back(
        Row(static_cast<uint32_t>(i), std::nullopt, {"other processes"}, 64 * kMiB, 0));
    gpu.ledger_bytes = base + 914 * kMiB;
    gpu.nvml_bytes = gpu.ledger_bytes - 30 * kMiB;
    gpu.residual_bytes = -30 * static_cast<int64_t>(kMiB);
    gpu.in_transit_bytes = 2 * static_cast<int64_t>(kMiB);
    report.devices.push_back(gpu);
    report.processes.push_back({gpu.device, pid, i, "/usr/bin/python3 /srv/t\x1b[2J.py",
                                std::nullopt, base + 500 * kMiB, std::nullopt,
                                tables::ProcessId{static_cast<uint32_t>(i) + 1}});
    report.residuals.push_back({gpu.device, 100, 50,
                                (i == 2 ? -31 : -30) * static_cast<int64_t>(kMiB),
                                kStart + 20'000'000'000, 20 * kMiB, 900 * kMiB, gpu.ledger_bytes});
  }
  recording.edit().session.finished = false;
  report.losses = {{"events dropped: no room for the trace", 12'345, 6 * kMiB},
                   {"python stacks not recorded", 1, 0}};
  report.invariants = {{"nothing is freed twice", false, "0x7f00 freed again at 3.2 s by pid 100"},
                       {"children sum to the parent", true, ""}};
  report.top_lines = {{tables::DeviceId{3}, "t.py:1 in f", "x\ty", 1002 * kMiB, 7},
                      {tables::DeviceId{4}, "t.py:1 in f", "x\ty", 1003 * kMiB, 7}};
  return report;
}

std::string Expected(const std::string& name, const std::string& actual) {
  const std::string path = std::string(VRAMSCOPE_OUTPUT_TESTDATA) + "/" + name;
  if (std::getenv("VRAMSCOPE_BLESS") != nullptr)
    std::ofstream(path) << actual;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace vramscope::output
