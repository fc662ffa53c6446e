// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

// Other tools that stand between this process and the driver.
namespace vramscope::probe::cuda {

struct OtherTools {
  char names[128] = {};        // "Nsight Systems, HAMi", or ""
  bool must_be_alone = false;  // one of them changes what the driver does: nothing is redirected
};

// By the names of loaded libraries, the environment, and who traces this process. Once a process,
// when a driver is found: it opens a file or two.
void FindOtherTools(OtherTools* tools);

}  // namespace vramscope::probe::cuda
