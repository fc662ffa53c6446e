// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "probe/hooks/nvtx/nvtx_types.h"

// NVTX ranges that a program has anyway, as scopes. The launcher names the probe in
// NVTX_INJECTION64_PATH, unless another tool is named there.
namespace vramscope::probe::nvtx {

// Puts our functions into the tables of one NVTX instance. False if they cannot be found.
bool FillTables(GetExportTable get_export_table);

// The same for its payload or counters extension.
bool FillExtension(const ExtensionModule* module);

// ---- registered strings
// Strings that programs register with NVTX, and names of domains: kept until the process ends, each
// text once, in a fixed amount of memory that is untouched until used.

struct Registered {
  uint64_t hash;
  uint32_t size_bytes;
  char text[4];  // longer, and a zero byte
};

// The one for that text; nullptr if the table is full. Lock-free.
const Registered* Register(const char* text, size_t size_bytes);

// The same for a handle that a program gave; nullptr if it is none of ours.
const Registered* FromHandle(const void* handle);

// ---- communicators
// NCCL says in the ranges of its own domain which communicator it is at: the functions that make
// one when they end, collectives when they begin. A range in which the driver gave memory leaves a
// record; all others cost a few loads and stores of the thread's own.

// A domain was made. Its handle is never dereferenced.
void NoteDomain(const void* domain, const char* name, size_t size_bytes);
bool IsNccl(const void* domain);

// Finds the needed fields in a payload with that schema.
void NoteSchema(const SchemaAttributes* schema);

// A range of NCCL's, by its attributes and its name.
void BeginRange(const EventAttributes* attributes, const char* name, size_t size_bytes);
// `payloads`: null if it says no more than it said at its begin.
void EndRange(const PayloadData* payloads, size_t count);

// ---- counters
// Counters of bytes become records. A counter whose unit is not bytes has no id, as without a tool.

// The ids, or kNoId.
uint64_t RegisterScope(const void* domain, const ScopeAttributes* scope);
uint64_t RegisterCounter(const void* domain, const CounterAttributes* counter);

void SampleInt64(const void* domain, uint64_t counter, int64_t value);
void SampleFloat64(const void* domain, uint64_t counter, double value);
void SampleNoValue(const void* domain, uint64_t counter, uint8_t reason);

}  // namespace vramscope::probe::nvtx
