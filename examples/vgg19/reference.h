// SPDX-License-Identifier: Apache-2.0
// The layers on the CPU, as plainly as possible: what the five algorithms are compared with.
#pragma once

#include <vector>

#include "layers.h"

namespace vgg19 {

// What `layer` makes of `batch` pictures, one behind the other. Sums are taken in double. `weight`
// and `bias` may be null where a layer has none.
std::vector<float> Reference(const Layer& layer,
                             int batch,
                             const std::vector<float>& input,
                             const float* weight,
                             const float* bias);

// The largest difference of any two values, as a share of the largest value of `reference`;
// infinite where either is not a number or the sizes differ.
double LargestError(const std::vector<float>& values, const std::vector<float>& reference);

}  // namespace vgg19
