// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vramscope::probe {
class Stream;
namespace cuda {

// Writes which driver this process uses and how the wrappers came before it, for `vramscope info`.
void DescribeAttachment(Stream& stream);

}  // namespace cuda
}  // namespace vramscope::probe
