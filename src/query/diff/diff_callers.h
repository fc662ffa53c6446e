// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "query/diff/diff.h"
#include "query/diff/diff_causes.h"

namespace vramscope::query {

// Who calls the line of these rows: the frames of the user's own code at which their stacks part,
// that with the largest change first. Empty where all of them are called alike.
std::vector<DiffCaller> CallersOf(const Comparison& comparison, const std::vector<DiffKey>& keys);

}  // namespace vramscope::query
