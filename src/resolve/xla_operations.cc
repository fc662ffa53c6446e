// SPDX-License-Identifier: Apache-2.0
#include "resolve/xla_operations.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "resolve/attribute/owners.h"
#include "trace/xla/dump_folder.h"

namespace vramscope::resolve {
namespace {

// A text of which a file has thousands.
std::string_view Cut(std::string_view text) {
  constexpr size_t kMostBytes = 1024;
  return text.substr(0, kMostBytes);
}

// The last row is what is not live at the peak, and all of a program without a dump.
void AddRows(std::string_view program,
             uint64_t temp_bytes,
             const trace::XlaPeak& peak,
             tables::Dictionaries* names,
             tables::Tables* out) {
  constexpr size_t kMostRows = 4096;
  tables::XlaOperationRow row;
  row.program = names->AddText(program);
  row.temp_bytes = temp_bytes;
  uint64_t left_bytes = temp_bytes;
  for (size_t i = 0; i < peak.operations.size(); ++i) {
    const trace::XlaOperation& operation = peak.operations[i];
    left_bytes -= operation.bytes;
    if (i >= kMostRows) {
      // Small ones of a very large program are one row.
      out->xla_operations.back().bytes += operation.bytes;
      continue;
    }
    row.bytes = operation.bytes;
    row.instruction = names->AddText(Cut(operation.instruction));
    row.op_name = names->AddText(Cut(operation.hlo.op_name));
    row.frame = {};
    if (const trace::HloPlace& place = operation.hlo.place; place.line != 0) {
      tables::FrameRow frame;
      frame.function = names->AddText(Cut(place.function));
      frame.file = names->AddText(place.file);
      frame.line = place.line;
      frame.library = IsUserFile(place.file) ? 0 : 1;
      row.frame = names->AddFrame(frame);
    }
    row.fused = operation.hlo.fused;
    row.rematerialized = operation.hlo.rematerialized ? 1 : 0;
    if (i + 1 == kMostRows && peak.operations.size() > kMostRows) {
      row.instruction =
          names->AddText("(" + std::to_string(peak.operations.size() - i) + " smaller ones)");
      row.op_name = {};
      row.frame = {};
      row.fused = row.rematerialized = 0;
    }
    out->xla_operations.push_back(row);
  }
  if (left_bytes != 0 || peak.operations.empty()) {
    tables::XlaOperationRow rest;
    rest.program = row.program;
    rest.temp_bytes = temp_bytes;
    rest.bytes = left_bytes;
    out->xla_operations.push_back(rest);
  }
}

}  // namespace

trace::Loss AddXlaOperations(const trace::Trace& trace,
                             const ExecutedPrograms& executed,
                             tables::Dictionaries* names,
                             tables::Tables* out) {
  constexpr size_t kMostTextBytes = size_t{32} << 20;
  constexpr size_t kMostNotes = 16;
  const trace::SessionInfo& session = trace.session();
  trace::Loss unread{"XLA programs without a readable dump"};
  if (session.xla_dumps.empty())
    return unread;
  struct Program {
    std::string name;
    uint64_t temp_bytes = 0;
    trace::XlaPeak peak;
  };
  trace::XlaDumpFolder dumps(session.xla_dumps, session.start_wall_ns, IsUserFile);
  std::vector<Program> programs;
  std::map<std::string, size_t> by_file;
  size_t text_bytes = 0;
  for (const auto& [id, recorded_bytes] : executed.all()) {
    Program program{std::string(Cut(trace.string(id))), recorded_bytes, {}};
    auto found = dumps.Find(program.name, recorded_bytes);
    if (found && text_bytes > kMostTextBytes)
      found = util::Status::Error("too many operations in all programs");
    if (found) {
      program.temp_bytes = std::max(recorded_bytes, found->peak.temp_bytes);
      const auto [known, is_new] = by_file.try_emplace(found->file, programs.size());
      if (!is_new) {
        uint64_t& bytes = programs[known->second].temp_bytes;
        bytes = std::max(bytes, program.temp_bytes);
        continue;
      }
      program.peak = std::move(found->peak);
      for (const trace::XlaOperation& operation : program.peak.operations)
        text_bytes += program.name.size() + operation.instruction.size() +
                      operation.hlo.op_name.size() + operation.hlo.place.file.size();
    } else if (recorded_bytes != 0) {
      if (++unread.count <= kMostNotes) {
        out->notes.push_back({names->AddText("XLA dump of " + program.name),
                              names->AddText("not read: " + found.status().message())});
      }
      unread.bytes += recorded_bytes;
    } else {
      continue;  // a program without temporary memory
    }
    programs.push_back(std::move(program));
  }
  std::stable_sort(programs.begin(), programs.end(),
                   [](const Program& a, const Program& b) { return a.temp_bytes > b.temp_bytes; });
  for (const Program& program : programs)
    AddRows(program.name, program.temp_bytes, program.peak, names, out);
  unread.count += executed.unlisted();
  return unread;
}

}  // namespace vramscope::resolve
