// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "differential/program.h"

// What random programs do, by subject. A new entry point is a line of driver_calls.h and one of the
// table at the end of a file.
namespace differential {

std::vector<Operation> MemoryOperations();
std::vector<Operation> StreamOperations();
std::vector<Operation> ContextOperations();

template <class T>
T Take(std::vector<T>& from, Rng& rng) {
  const size_t index = rng.Below(from.size());
  T taken = std::move(from[index]);
  from.erase(from.begin() + static_cast<ptrdiff_t>(index));
  return taken;
}

inline const void* At(uint64_t address) {
  return reinterpret_cast<const void*>(address);
}

// These also run while a stream is captured.
void AllocLinear(Program& p, Hand& hand, Rng& rng);
void FreeLinear(Program& p, Hand& hand, Rng& rng);
void MakePhysical(Program& p, Hand& hand, Rng& rng);

}  // namespace differential
