// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "report/devices.h"
#include "report/export.h"
#include "report/export_pieces.h"
#include "report/text.h"
#include "util/text_cell.h"

namespace vramscope::report {
namespace {

// The columns of the query below.
enum Column : size_t { kPython, kNative, kOwner, kCategory, kColumns };

constexpr char kNoStack[] = "(no stack)";

// A frame that stands for no code. Semicolons would split it, line breaks the line.
std::string Bracketed(std::string_view text) {
  std::string name = util::OneLine(text);
  std::replace(name.begin(), name.end(), ';', ' ');
  return "[" + name + "]";
}

std::string Frames(const engine::ReportRow& row) {
  const bool driver = row.path[kCategory] == "driver";
  for (const Column column : {kPython, kNative}) {
    if (row.path[column] == kNoStack)
      continue;
    const std::string frames = util::OneLine(row.path[column]);
    // What the driver took for a call of this line is not what the line asked for.
    return driver ? frames + ";[driver]" : frames;
  }
  const std::string owner = Bracketed(row.path[kOwner]);
  return row.path[kCategory] == "unknown" ? owner : owner + ";" + Bracketed(row.path[kCategory]);
}

class Roots {
 public:
  explicit Roots(const engine::Report& report) : report_(report) {
    for (const engine::ReportRow& row : report.rows) {
      if (row.bytes == 0)
        continue;
      devices_.insert(row.device);
      if (row.pid)
        pids_.insert(*row.pid);
    }
  }

  // The frames below which a row's stack stands: only what tells rows apart.
  std::string Of(const engine::ReportRow& row) const {
    std::string root;
    if (devices_.size() > 1)
      root += Bracketed(Device(row)) + ";";
    if (pids_.size() > 1 && row.pid)
      root += Bracketed(Process(*row.pid)) + ";";
    return root;
  }

 private:
  std::string Device(const engine::ReportRow& row) const {
    const auto found =
        std::find_if(report_.devices.begin(), report_.devices.end(),
                     [&](const auto& device) { return device.device == row.device; });
    return found == report_.devices.end() ? "?" : DeviceMark(found->kind, found->index);
  }

  std::string Process(uint32_t pid) const {
    const auto found = std::find_if(report_.processes.begin(), report_.processes.end(),
                                    [&](const auto& process) { return process.pid == pid; });
    return found == report_.processes.end() ? fmt::format("pid {}", pid)
                                            : ProcessLabel(found->command, pid, found->rank);
  }

  const engine::Report& report_;
  std::set<trace::DeviceId> devices_;
  std::set<uint32_t> pids_;
};

}  // namespace

util::Status ExportCollapsed(engine::Analysis& analysis, const ExportSink& sink) {
  engine::ReportQuery query;
  query.by = {engine::Dimension::kPython, engine::Dimension::kNative, engine::Dimension::kOwner,
              engine::Dimension::kCategory};
  const util::Result<engine::Report> report = analysis.MakeReport(query);
  if (!report.ok())
    return report.status();
  const Roots roots(*report);
  std::map<std::string, uint64_t> lines;
  for (const engine::ReportRow& row : report->rows) {
    if (row.bytes > 0 && row.path.size() == kColumns)
      lines[roots.Of(row) + Frames(row)] += row.bytes;
  }
  ExportPieces pieces(sink);
  for (const auto& [frames, bytes] : lines) {
    pieces.text() += fmt::format("{} {}\n", frames, bytes);
    pieces.LineDone();
  }
  return pieces.Finish();
}

}  // namespace vramscope::report
