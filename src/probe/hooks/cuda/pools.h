// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "probe/hooks/cuda/context.h"
#include "probe/hooks/cuda/hook_call.h"

// Memory pools: what a pool holds is what the device misses, whatever the program has of it.
namespace vramscope::probe::cuda {

// A pool gives memory back at calls that synchronise: reads every pool that may have.
void ReadPoolsAfterSynchronisation();

// Reads the device's graph memory, written as pool 0.
void ReadGraphPool(int32_t device);

// The pools of a device end with its primary context.
void ForgetPoolsOf(int32_t device);
void ForgetPools();

}  // namespace vramscope::probe::cuda
