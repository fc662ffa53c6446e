// SPDX-License-Identifier: Apache-2.0
#include "report/export.h"

namespace vramscope::report {

const std::vector<ExportFormat>& ExportFormats() {
  static const std::vector<ExportFormat> kFormats = {
      {"csv", "every allocation, a table", ExportLivesCsv},
      {"json", "every allocation, JSON Lines", ExportLivesJson},
      {"collapsed", "folded stacks at the peak, for flame graphs", ExportCollapsed},
  };
  return kFormats;
}

}  // namespace vramscope::report
