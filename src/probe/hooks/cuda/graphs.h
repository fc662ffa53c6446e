// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "probe/session/slot_table.h"

// Memory that graphs allocate for themselves: addresses say nothing of bytes, the device's graph
// memory is read instead.
namespace vramscope::probe::cuda {

// An allocation node gave this address, by capture or by hand.
void NoteGraphAddress(uint64_t address);
// Whether `address` is a graph's. An address that was freed, or given out anew, is not any more.
bool TakeGraphAddress(uint64_t address);
// Some graph of this process allocates memory.
bool HasGraphMemory();

// Reads the device's graph memory, written as pool 0.
void ReadGraphPool(int32_t device);
void ForgetGraphs(OtherThreads others);

}  // namespace vramscope::probe::cuda
