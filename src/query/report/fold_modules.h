// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "query/dimensions/report.h"

namespace vramscope::query {

// Repeated layers as one entry: modules of one device and class whose names differ in numbers alone
// ("blocks.3.attn", "encoder_layer_3"), that hold the same categories, and as many bytes within one
// percent of the largest. The name says which they are ("blocks.[0-11].attn"), `modules` how many;
// bytes and counts are of all of them. Largest first within a device, as the entries come.
std::vector<ModuleEntry> FoldModules(const std::vector<ModuleEntry>& entries);

}  // namespace vramscope::query
