// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "probe/hooks/nvtx/nvtx_types.h"

// NCCL says in the ranges of its own domain which communicator it is at: the functions that make
// one when they end, collectives when they begin. A range in which the driver gave memory leaves a
// record; all others cost a few loads and stores of the thread's own.
namespace vramscope::probe::nvtx {

// That domain was made. Its handle is never dereferenced.
void NoteDomain(const void* domain, const char* name, size_t size_bytes);
bool IsNccl(const void* domain);

// Where in a payload of that shape what we need is.
void NoteSchema(const SchemaAttributes* schema);

// A range of NCCL's, by its attributes and its name.
void BeginRange(const EventAttributes* attributes, const char* name, size_t size_bytes);
// `payloads`: null where it says no more than it said at its begin.
void EndRange(const PayloadData* payloads, size_t count);

}  // namespace vramscope::probe::nvtx
