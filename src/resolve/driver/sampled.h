// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "resolve/price/price.h"

namespace vramscope::resolve {

// The prices of a GPU of which nothing but samples is known: the programs ran without the probe.
// The rows are NVML's figure of the device, taken apart by its lists of processes; they always add
// up to it, so that there is nothing to compare.
//
//   device  ----o----o----o----o----o----o----o----o----    what others have changes with a list,
//   lists       L                        L                  the rest is the command's
//
// `input` has no moves, calls or readings. Process 0 is the command's own.
price::DevicePrices PriceSampledDevice(const price::DeviceInput& input);

}  // namespace vramscope::resolve
