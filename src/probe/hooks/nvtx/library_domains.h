// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace vramscope::probe::nvtx {

// Whether a library made that domain for its own steps. `caller`: where the call came from.
bool IsLibraryDomain(const char* name, size_t size_bytes, const void* caller);

}  // namespace vramscope::probe::nvtx
