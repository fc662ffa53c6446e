// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "output/devices.h"
#include "output/export/export.h"
#include "output/export/live_stacks.h"
#include "util/text_cell.h"

namespace vramscope::output {
namespace {

// The columns of the query below.
enum Column : size_t { kPython, kNative, kOwner, kCategory, kColumns };

constexpr char kNoStack[] = "(no stack)";

std::string Frames(const query::ReportRow& row) {
  const bool driver = row.path[kCategory] == "driver";
  for (const Column column : {kPython, kNative}) {
    if (row.path[column] == kNoStack)
      continue;
    const std::string frames = util::OneLine(row.path[column]);
    // What the driver took for a call of this line is not what the line asked for.
    return driver ? frames + ";[driver]" : frames;
  }
  const std::string owner = InBrackets(row.path[kOwner]);
  return row.path[kCategory] == "unknown" ? owner : owner + ";" + InBrackets(row.path[kCategory]);
}

class Roots {
 public:
  explicit Roots(const query::Report& report) : report_(report) {
    for (const query::ReportRow& row : report.rows) {
      if (row.bytes == 0)
        continue;
      devices_.insert(row.device);
      if (row.pid)
        pids_.insert(*row.pid);
    }
  }

  // The frames below which a row's stack stands: only what tells rows apart.
  std::string Of(const query::ReportRow& row) const {
    std::string root;
    if (devices_.size() > 1)
      root += InBrackets(DeviceMark(report_, row.device)) + ";";
    if (pids_.size() > 1 && row.pid)
      root += InBrackets(Process(*row.pid)) + ";";
    return root;
  }

 private:
  std::string Process(uint32_t pid) const {
    const auto found = std::find_if(report_.processes.begin(), report_.processes.end(),
                                    [&](const auto& process) { return process.pid == pid; });
    return found == report_.processes.end() ? fmt::format("pid {}", pid)
                                            : ProcessLabel(found->command, pid, found->rank);
  }

  const query::Report& report_;
  std::set<tables::DeviceId> devices_;
  std::set<uint32_t> pids_;
};

}  // namespace

query::ReportQuery CollapsedQuery() {
  query::ReportQuery query;
  query.by = {query::Dimension::kPython, query::Dimension::kNative, query::Dimension::kOwner,
              query::Dimension::kCategory};
  return query;
}

util::Status WriteCollapsed(const query::Report& report, const ExportSink& sink) {
  const Roots roots(report);
  std::map<std::string, uint64_t> lines;
  for (const query::ReportRow& row : report.rows) {
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

util::Status ExportCollapsed(const tables::Recording& recording,
                             const ExportOptions& options,
                             const ExportSink& sink) {
  query::ReportQuery query = CollapsedQuery();
  query.at = options.at;
  const util::Result<query::Report> report = query::MakeReport(recording, query);
  if (!report.ok())
    return report.status();
  return WriteCollapsed(*report, sink);
}

}  // namespace vramscope::output
