// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "resolve/price/price.h"
#include "resolve/price/series.h"

namespace vramscope::resolve::price {

std::vector<ArrayPrice> PriceArrays(const DeviceInput& input, const Series& series);

}  // namespace vramscope::resolve::price
