// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/cuda.h"

namespace vramscope::probe {

void CudaObserveDlopen(const char*, int) {}
bool CudaIsActive() {
  return false;
}
void CudaMarkReading() {}

}  // namespace vramscope::probe
