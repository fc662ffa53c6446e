// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vramscope::probe::cuda {

void ForgetLaunches();

}  // namespace vramscope::probe::cuda
