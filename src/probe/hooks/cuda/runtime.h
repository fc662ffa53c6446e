// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

// What PyTorch's allocator asks of the CUDA runtime. A runtime that was at work before the probe
// came has its pointers into the driver already, so there its calls to the driver go unseen; the
// allocator's calls to the runtime come by name, through slots of libc10_cuda.so that
// inject/late.cc points here. Where the driver's wrapper is called all the same, that one records.
namespace vramscope::probe {

struct RuntimeHook {
  const char* symbol;
  void (*function)();
};
inline constexpr size_t kRuntimeHookCount = 4;

// Finds the real functions. Entries without one have no `function`. Where there is no shared
// runtime, none has.
void FindRuntimeHooks(RuntimeHook (*hooks)[kRuntimeHookCount]);

}  // namespace vramscope::probe
