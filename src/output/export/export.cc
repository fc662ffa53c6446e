// SPDX-License-Identifier: Apache-2.0
#include "output/export/export.h"

#include <fmt/format.h>

#include "util/budget.h"
#include "util/size_text.h"

namespace vramscope::output {

const std::vector<ExportFormat>& ExportFormats() {
  static const std::vector<ExportFormat> kFormats = {
      {"csv", "every allocation, and the segments they are cut out of, a table", nullptr,
       ExportAllocationsCsv, true},
      {"json", "every allocation, JSON Lines", nullptr, ExportAllocationsJson, true},
      {"collapsed", "folded stacks at an instant, for flame graphs", "peak", ExportCollapsed},
      {"speedscope", "stacks at an instant, for speedscope.app", "peak", ExportSpeedscope},
      {"pprof", "stacks at an instant, and of all that was allocated, for pprof", "peak",
       ExportPprof},
      {"perfetto", "categories over time, a slice for each allocation, for ui.perfetto.dev",
       nullptr, ExportPerfetto},
      {"torch-snapshot", "PyTorch's memory snapshot, for pytorch.org/memory_viz (--at: end)", "end",
       ExportTorchSnapshot},
  };
  return kFormats;
}

util::Status WriteExport(const ExportFormat& format,
                         const tables::Recording& recording,
                         const ExportOptions& options,
                         const ExportSink& sink) {
  const tables::Session& session = recording.tables().session;
  if (format.of_allocations && tables::IsSampled(recording)) {
    return util::Status::Error(
        session.path +
        ": sampled, so no allocations are known; its readings are in `export --to perfetto` and "
        "`plot`");
  }
  util::Budget budget(session.file_bytes, kExportBaseBytes, kExportBytesPerFileByte);
  const uint64_t limit_bytes = budget.left_bytes();
  return format.write(recording, options, [&](std::string_view piece) -> util::Status {
    if (budget.Charge("bytes", piece.size()))
      return sink(piece);
    return util::Status::Error(fmt::format(
        "{}: as {} its {} allocations would be more than {}, too much for a recording of {}: it is "
        "damaged, or made to do harm",
        session.path, format.name, session.allocation_count, util::FormatBytes(limit_bytes),
        util::FormatBytes(session.file_bytes)));
  });
}

}  // namespace vramscope::output
