// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

#include "util/status.h"

namespace vramscope::util {

// Calls work(0) to work(workers - 1) on a thread each, the first on the caller's. The first error
// of theirs, in that order; what one of them throws is thrown here.
Status OnThreads(size_t workers, const std::function<Status(size_t worker)>& work);

}  // namespace vramscope::util
