// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vramscope::probe::pjrt {

// Whether the library at `path` defines a function of that name, by its .gnu.hash. Some bounded
// reads of the file: nothing is loaded or mapped.
bool ExportsFunction(const char* path, const char* name);

}  // namespace vramscope::probe::pjrt
