// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "top/recorded.h"
#include "util/status.h"

namespace vramscope::cli {

// One screen as plain text, or as JSON.
util::Status PrintTop(const TopTarget& target, bool json);

// Shows the screen on the terminal until the user quits, then ends this process.
[[noreturn]] void ShowTop(const TopTarget& target, int64_t period_ns);

}  // namespace vramscope::cli
