// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// Strings that programs register with NVTX, and names of domains: kept until the process ends, each
// text once, in a fixed amount of memory that is untouched until used.
namespace vramscope::probe::nvtx {

struct Registered {
  uint64_t hash;
  uint32_t size_bytes;
  char text[4];  // longer
};

// The one for that text; nullptr when there is no more room. Lock-free.
const Registered* Register(const char* text, size_t size_bytes);

// The same for a handle that a program gave; nullptr where it is none of ours.
const Registered* FromHandle(const void* handle);

}  // namespace vramscope::probe::nvtx
