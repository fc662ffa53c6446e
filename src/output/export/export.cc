// SPDX-License-Identifier: Apache-2.0
#include "output/export/export.h"

namespace vramscope::output {

const std::vector<ExportFormat>& ExportFormats() {
  static const std::vector<ExportFormat> kFormats = {
      {"csv", "every allocation, a table", nullptr, ExportAllocationsCsv},
      {"json", "every allocation, JSON Lines", nullptr, ExportAllocationsJson},
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

}  // namespace vramscope::output
