// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/crc32c.h"

namespace vramscope::trace {

// Whether `bytes` have the checksum that the file says. Under a fuzzer always: it would never get
// past a checksum, and what lies behind one is what it is to test.
inline bool ChecksumHolds(const void* bytes, size_t size, uint32_t expected) {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  (void)bytes, (void)size, (void)expected;
  return true;
#else
  return base::Crc32c(bytes, size) == expected;
#endif
}

}  // namespace vramscope::trace
