// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/target.h"
#include "resolve/immovable.h"
#include "util/status.h"

// What can be known before the driver is asked to move a process's memory, and would break it.
namespace vramscope::cli {

// "64.0 MiB of managed memory (2 allocations), 1 multicast object (NCCL_NVLS_ENABLE=0 avoids it)";
// "" where all moves.
std::string DescribeImmovable(const resolve::Movability& movability);

// Looks into the process's recording. An error says why the process must not be asked to yield;
// `*unchecked` is what could not be checked, "" where all could.
util::Status CheckRecording(const Target& target, std::string* unchecked);

// Whether the host takes so many bytes more from the process.
util::Status CheckHostMemory(const Target& target, uint64_t bytes);

}  // namespace vramscope::cli
