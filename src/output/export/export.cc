// SPDX-License-Identifier: Apache-2.0
#include "output/export/export.h"

namespace vramscope::output {

const std::vector<ExportFormat>& ExportFormats() {
  static const std::vector<ExportFormat> kFormats = {
      {"csv", "every allocation, a table", ExportAllocationsCsv},
      {"json", "every allocation, JSON Lines", ExportAllocationsJson},
      {"collapsed", "folded stacks at the peak, for flame graphs", ExportCollapsed},
  };
  return kFormats;
}

}  // namespace vramscope::output
