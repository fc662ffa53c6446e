// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "probe/hooks/nvtx/nvtx_types.h"

// NVTX ranges that a program has anyway, as scopes. The launcher names the probe in
// NVTX_INJECTION64_PATH, unless another tool is named there.
namespace vramscope::probe::nvtx {

// Puts our functions into the tables of one NVTX instance. False where they cannot be found.
bool FillTables(GetExportTable get_export_table);

// The same for its payload extension.
bool FillExtension(const ExtensionModule* module);

}  // namespace vramscope::probe::nvtx
