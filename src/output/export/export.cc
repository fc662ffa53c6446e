// SPDX-License-Identifier: Apache-2.0
#include "output/export/export.h"

namespace vramscope::output {

const std::vector<ExportFormat>& ExportFormats() {
  static const std::vector<ExportFormat> kFormats = {
      {"csv", "every allocation, a table", false, ExportAllocationsCsv},
      {"json", "every allocation, JSON Lines", false, ExportAllocationsJson},
      {"collapsed", "folded stacks at an instant, for flame graphs", true, ExportCollapsed},
      {"speedscope", "stacks at an instant, for speedscope.app", true, ExportSpeedscope},
      {"pprof", "stacks at an instant, and of all that was allocated, for pprof", true,
       ExportPprof},
      {"perfetto", "categories over time, a slice for each allocation, for ui.perfetto.dev", false,
       ExportPerfetto},
  };
  return kFormats;
}

}  // namespace vramscope::output
