// SPDX-License-Identifier: Apache-2.0
// The temporary memory of XLA's programs, by HLO operation.
#include <algorithm>
#include <map>
#include <utility>

#include "query/dimensions/frames.h"
#include "query/dimensions/report.h"

namespace vramscope::query {

util::Result<XlaPrograms> MakeXlaPrograms(const tables::Recording& recording) {
  XlaPrograms out;
  std::map<std::pair<tables::StringId, uint64_t>, size_t> by_name;
  for (const tables::XlaOperationRow& row : recording.tables().xla_operations) {
    const auto [known, is_new] =
        by_name.try_emplace({row.program, row.temp_bytes}, out.programs.size());
    if (is_new) {
      out.programs.push_back({});
      out.programs.back().name = recording.string(row.program);
      out.programs.back().temp_bytes = row.temp_bytes;
    }
    XlaProgram& program = out.programs[known->second];
    if (row.instruction.value == 0) {
      program.idle_bytes = row.bytes;
      continue;
    }
    program.dumped = true;
    XlaOperation operation;
    operation.bytes = row.bytes;
    operation.instruction = recording.string(row.instruction);
    operation.op_name = recording.string(row.op_name);
    if (row.frame.value != 0)
      operation.place = FormatFrame(recording, row.frame);
    operation.fused = row.fused;
    operation.rematerialized = row.rematerialized != 0;
    program.operations.push_back(std::move(operation));
  }
  if (out.programs.empty()) {
    return util::Status::Error(
        "no temporary memory of XLA's programs is known by operation: record with `vramscope run "
        "--xla-hlo`, where XLA has a GPU");
  }
  std::stable_sort(
      out.programs.begin(), out.programs.end(),
      [](const XlaProgram& a, const XlaProgram& b) { return a.temp_bytes > b.temp_bytes; });
  for (XlaProgram& program : out.programs)
    std::stable_sort(
        program.operations.begin(), program.operations.end(),
        [](const XlaOperation& a, const XlaOperation& b) { return a.bytes > b.bytes; });
  return out;
}

}  // namespace vramscope::query
