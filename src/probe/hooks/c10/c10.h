// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

// The functions of libc10 that the probe stands in front of. A preloaded probe is found by name;
// for objects that were loaded before it, inject/late.cc points their slots here.
namespace vramscope::probe {

struct C10Hook {
  const char* symbol;
  void* function;
};
inline constexpr size_t kC10HookCount = 5;
extern const C10Hook kC10Hooks[kC10HookCount];

}  // namespace vramscope::probe
