// SPDX-License-Identifier: Apache-2.0 Attributes driver memory whose size no call reports:
// contexts, code, local memory, streams, arrays. It runs after all calls, readings and samples of a
// device are known, so its result is final.
//
//   explicit calls     --[+64 MiB]-----------[-64 MiB]---------
//   implicit calls     ---------[module]--[launch]-------------
//   readings           |     |       :              |          |     ':' a call overlaps it:
//   unclear NVML, device       *   *    *   *   *   *   *   *   *   * NVML, process o o
//
// The change between two clear readings, less the explicit calls' moves, belongs to the implicit
// calls between them, jointly if there are several. NVML's process figures then separate what the
// device's figure cannot: processes that called at the same time, unrecorded processes, and the
// kernel module's memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/memory_words.h"

namespace vramscope::resolve::price {

inline constexpr uint32_t kNone = UINT32_MAX;
inline constexpr int64_t kNever = INT64_MAX;

// When a call or query ran, and its place in the order. No two changes of memory have the same
// time.
struct When {
  int64_t time_ns = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// Bytes moved by an explicit call, or 0; no reading during the call is clear. A process's end moves
// all that it had.
struct Move {
  When when;
  uint32_t process = kNone;
  int64_t bytes = 0;
  uint32_t array = kNone;    // number of the array; `bytes` is then an estimate, or its negative
  bool from_before = false;  // allocated before recording
  bool asks = false;         // requested memory and got it, so the process is not checkpointed
};

struct ImplicitCall {
  enum class Kind : uint8_t { kOther, kInit, kContextCreate, kContextDestroy };
  When when;
  uint32_t process = kNone;
  format::Part part = format::Part::kOtherDriver;
  Kind kind = Kind::kOther;
  bool only_takes = false;     // never gives memory back
  bool until_reading = false;  // its end is unknown: before its process's next reading
  bool reallocates = false;    // frees the old memory before it allocates the new
  bool is_primary = false;     // the device's primary context, whose memory outlasts its end
  uint64_t context = 0;
  std::string text;  // "cuLaunchKernel name"
};

struct Reading {
  When when;
  uint32_t process = kNone;
  int64_t used_bytes = 0;
};

struct DeviceSample {
  When when;
  int64_t used_bytes = 0;
};

struct ProcessSample {
  When when;
  uint32_t process = kNone;  // kNone: not recorded
  int64_t used_bytes = 0;
};

// A call that moves all memory of a process to the host or back.
struct CheckpointCall {
  When when;
  uint32_t process = kNone;
  bool leaves = false;
};

// Managed memory, which is on the device after it is touched.
struct ManagedAllocation {
  uint32_t site = 0;  // number in DeviceInput::managed_sites
  int64_t bytes = 0;
};
struct ManagedMove {
  When when;
  uint32_t allocation = 0;
  bool frees = false;
};

struct Process {
  int64_t late_ns = kNever;      // when it was found to have run before its recording
  int64_t shares_ns = kNever;    // from then on it shares memory with other processes
  int64_t teardown_ns = kNever;  // exit() and the like began
  std::optional<When> end;       // its memory was freed in this time
};

// One GPU. Everything in order of time_ns.
struct DeviceInput {
  std::vector<Process> processes;  // by number
  std::vector<Move> moves;
  std::vector<ImplicitCall> calls;
  std::vector<Reading> readings;
  std::vector<DeviceSample> samples;
  std::vector<ProcessSample> figures;
  std::vector<CheckpointCall> checkpoints;
  std::vector<uint32_t> managed_sites;  // by call site: the process
  std::vector<ManagedAllocation> managed_allocations;
  std::vector<ManagedMove> managed_moves;
};

struct Counter {
  uint32_t process = kNone;  // kNone: no process (RM-internal, other processes)
  format::Part part = format::Part::kOtherDriver;
  bool corrected = false;  // to NVML's process figure; otherwise known by readings only
  std::string trigger;     // "cuInit + cuCtxCreate_v4"
  uint32_t call = kNone;   // index in DeviceInput::calls of the representative call
  uint64_t context = 0;
  uint32_t managed_site = kNone;  // for managed memory: who allocated it
  std::optional<When> came;       // for unexplained memory: when it appeared
};

struct Step {
  When when;  // of the calls that caused it
  uint32_t counter = 0;
  int64_t bytes = 0;
};

struct ArrayPrice {
  int64_t bytes = 0;
  bool by_readings = false;  // otherwise an estimate
};

// During calls the ledger at an NVML figure is the interval [ledger - low, ledger + high].
struct Compared {
  int64_t ledger_bytes = 0;
  int64_t low_bytes = 0;
  int64_t high_bytes = 0;
};
struct SampleResult : Compared {
  bool counted = false;  // a recorded process used the device
};

// A time in which all memory of a process was off the device.
struct Checkpointed {
  uint32_t process = kNone;
  int64_t begin_ns = 0;
  int64_t end_ns = kNever;
  friend bool operator==(const Checkpointed&, const Checkpointed&) = default;
};

// From that time on the rows have more than the device, for an unknown reason.
struct Missing {
  When when;
  int64_t bytes = 0;  // negative
};

struct Unsettled {
  int64_t begin_ns = 0;
  int64_t end_ns = kNever;
};

struct DevicePrices {
  std::vector<Counter> counters;
  std::vector<Step> steps;            // by time
  std::vector<ArrayPrice> arrays;     // by number
  std::vector<SampleResult> samples;  // of DeviceInput::samples
  std::vector<Compared> figures;      // of DeviceInput::figures
  std::vector<Checkpointed> checkpointed;
  std::vector<Missing> missing;
  bool has_others = false;                // NVML lists unrecorded processes
  std::optional<int64_t> reading_offset;  // readings less NVML's device figure
  uint64_t contexts_not_measured = 0;     // made before the first reading
  // From the first call that only a later reading priced, to that reading.
  std::vector<Unsettled> unsettled;
};

// Computes the memory that the driver allocated for its own purposes: contexts, code, local memory,
// arrays. No call reports its size, so it follows from readings of free memory around calls and
// from NVML's figures.
//
//   free at reading 1           free at reading 2
//     |   cuModuleLoad  cuLaunchKernel   |      the difference, less the moves whose size is known,
//     |---------- 34 MiB less -----------|      is what these calls took: a Step of a Counter
//
// A pure function of one device's calls, called after all events. Unexplained bytes get a row of
// their own.
DevicePrices PriceDevice(const DeviceInput& input);

}  // namespace vramscope::resolve::price
