// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vramscope::probe::cuda {

// Code went away and its handles may come back as other code: every function counts as never
// launched and never looked at.
void ForgetFunctions();

}  // namespace vramscope::probe::cuda
