// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "resolve/price/price.h"

namespace vramscope::resolve {

// The rows of a GPU with NVML samples only, because its programs ran without the probe. They divide
// NVML's device total by its lists of processes. They always add up to the total, so there is no
// residual.
//
//   device  ----o----o----o----o----o----o----o----o----    what others have changes with a list,
//   lists       L                        L                  the rest is the command's
//
// `input` has no moves, calls or readings. Process 0 is the command's own.
price::DevicePrices PriceSampledDevice(const price::DeviceInput& input);

}  // namespace vramscope::resolve
