// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "query/dimensions/report.h"
#include "tables/memory_recording.h"

// A recording and reports made by hand, and the comparison with files of expected text.
namespace vramscope::output {

// When most recordings begin.
inline constexpr int64_t kStart = 1'000'000'000'000;

class FakeRecording : public tables::MemoryRecording {
 public:
  FakeRecording();

  tables::Tables& edit() { return tables_; }
  tables::StringId Intern(std::string_view text);
  tables::StackId PythonStack(tables::StackId parent,
                              std::string_view function,
                              std::string_view file,
                              uint32_t line);
  tables::StackId NativeStack(tables::StackId parent,
                              std::string_view function,
                              std::string_view file,
                              uint32_t line,
                              std::string_view image);
  tables::DeviceId AddDevice(tables::DeviceKind kind,
                             int32_t index,
                             std::string_view uuid = {},
                             std::string_view name = {},
                             uint64_t total_bytes = 0);
  tables::ProcessId AddProcess(uint32_t pid, std::string_view command, int32_t rank = -1);

 private:
  tables::StackId Push(tables::StackId parent, const tables::FrameRow& frame);
};

// A training on one GPU with pinned host memory: what most reports look like.
query::Report TrainingReport(FakeRecording& recording);
// Four ranks on four GPUs, residuals out of bounds, losses, broken invariants, hostile names.
query::Report TroubledReport(FakeRecording& recording);

// The text of testdata/NAME. With VRAMSCOPE_BLESS set in the environment, `actual` is written there
// first.
std::string Expected(const std::string& name, const std::string& actual);

}  // namespace vramscope::output
