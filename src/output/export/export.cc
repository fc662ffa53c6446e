// SPDX-License-Identifier: Apache-2.0
#include "output/export/export.h"

#include <fmt/format.h>

#include "output/answers.h"
#include "util/budget.h"
#include "util/size_text.h"

namespace vramscope::output {

const std::vector<ExportFormat>& ExportFormats() {
  static const std::vector<ExportFormat> kFormats = {
      {"csv", "a table of all allocations and segments", nullptr, ExportAllocationsCsv, true},
      {"json", "all allocations as JSON Lines", nullptr, ExportAllocationsJson, true},
      {"collapsed", "stacks at an instant, for flame graphs", "peak", ExportCollapsed},
      {"speedscope", "stacks at an instant, for speedscope.app", "peak", ExportSpeedscope},
      {"pprof", "stacks at an instant and over the whole run", "peak", ExportPprof},
      {"perfetto", "history, for ui.perfetto.dev", nullptr, ExportPerfetto},
      {"summary", "a summary of each rank, for `vramscope fleet`", nullptr, ExportSummary},
      {"torch-snapshot", "for pytorch.org/memory_viz (default: --at end)", "end",
       ExportTorchSnapshot},
  };
  return kFormats;
}

util::Status ExportSummary(const tables::Recording& recording,
                           const ExportOptions&,
                           const ExportSink& sink) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const query::Summary summary, query::MakeSummary(recording));
  return sink(SummaryJson(summary));
}

util::Status WriteExport(const ExportFormat& format,
                         const tables::Recording& recording,
                         const ExportOptions& options,
                         const ExportSink& sink) {
  const tables::Session& session = recording.tables().session;
  if (format.of_allocations && tables::IsSampled(recording)) {
    return util::Status::Error(
        session.path +
        ": it is sampled, so its allocations are unknown; `export --to perfetto` and `plot` show "
        "its readings");
  }
  util::Budget budget(session.file_bytes, kExportBaseBytes, kExportBytesPerFileByte);
  const uint64_t limit_bytes = budget.left_bytes();
  return format.write(recording, options, [&](std::string_view piece) -> util::Status {
    if (budget.Charge("bytes", piece.size()))
      return sink(piece);
    return util::Status::Error(
        fmt::format("{}: as {}, its {} allocations would be larger than {}, which is too much for "
                    "a recording of {}: the file is damaged or malicious",
                    session.path, format.name, session.allocation_count,
                    util::FormatBytes(limit_bytes), util::FormatBytes(session.file_bytes)));
  });
}

}  // namespace vramscope::output
