// SPDX-License-Identifier: Apache-2.0
// Driver memory that no call names: contexts, code, local memory, streams, arrays. What all calls,
// readings and samples of a device are is known before the first of them is judged: the result is
// final.
//
//   explicit calls     --[+64 MiB]-----------[-64 MiB]---------
//   implicit calls     ---------[module]--[launch]-------------
//   readings           |     |       :              |          |     ':' a call overlaps it:
//   unclear NVML, device       *   *    *   *   *   *   *   *   *   * NVML, process o o
//
// What changed between two clear readings, less what explicit calls moved, belongs to the implicit
// calls between them, jointly if several. NVML's figures of processes then tell apart what the
// device's figure cannot: processes that called at the same time, others that nobody records, and
// the kernel module's own memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/memory_words.h"

namespace vramscope::resolve::price {

inline constexpr uint32_t kNone = UINT32_MAX;
inline constexpr int64_t kNever = INT64_MAX;

// A call or a query: its place in the order, and when it ran. All times of what changes memory
// differ.
struct When {
  int64_t time_ns = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// What an explicit call moved, or 0 for one that moved nothing: no reading during it is clear. A
// process's end moves what it had.
struct Move {
  When when;
  uint32_t process = kNone;
  int64_t bytes = 0;
  uint32_t array = kNone;    // of this array, by number: `bytes` is an estimate, or its negative
  bool from_before = false;  // it stood before the recording began
  bool asks = false;         // for memory, and got it: the process is not checkpointed
};

struct ImplicitCall {
  enum class Kind : uint8_t { kOther, kInit, kContextCreate, kContextDestroy };
  When when;
  uint32_t process = kNone;
  format::Part part = format::Part::kOtherDriver;
  Kind kind = Kind::kOther;
  bool only_takes = false;     // never gives memory back
  bool until_reading = false;  // its end was not seen: it ended before its process's next reading
  bool reallocates = false;    // gives what the driver has back before it takes the new
  bool is_primary = false;     // of contexts: the device's own, whose memory outlasts its end
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
  uint32_t process = kNone;  // kNone: it is not recorded
  int64_t used_bytes = 0;
};

// A call that moves all memory of a process to the host, or back.
struct CheckpointCall {
  When when;
  uint32_t process = kNone;
  bool leaves = false;
};

// Managed memory, which is on the device where it is touched.
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
  int64_t late_ns = kNever;      // when it turned out that it was under way before its recording
  int64_t shares_ns = kNever;    // from here on it has memory that other processes have too
  int64_t teardown_ns = kNever;  // exit() and the like began
  std::optional<When> end;       // its memory went in this time
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
  std::vector<uint32_t> managed_sites;  // by place that allocates: the process
  std::vector<ManagedAllocation> managed_allocations;
  std::vector<ManagedMove> managed_moves;
};

struct Counter {
  uint32_t process = kNone;  // kNone: of no process's account (RM-internal, other processes)
  format::Part part = format::Part::kOtherDriver;
  bool corrected = false;  // to NVML's figure of the process; else by readings alone
  std::string trigger;     // "cuInit + cuCtxCreate_v4"
  uint32_t call = kNone;   // the one of DeviceInput::calls that stands for them
  uint64_t context = 0;
  uint32_t managed_site = kNone;  // of managed memory: who allocated it
  std::optional<When> came;       // of what nobody explains: the time in which it came
};

struct Step {
  When when;  // the calls that it came with
  uint32_t counter = 0;
  int64_t bytes = 0;
};

struct ArrayPrice {
  int64_t bytes = 0;
  bool by_readings = false;  // else the estimate stands
};

// With calls under way the ledger at a figure of NVML's is the interval [ledger - low, ledger +
// high].
struct Compared {
  int64_t ledger_bytes = 0;
  int64_t low_bytes = 0;
  int64_t high_bytes = 0;
};
struct SampleResult : Compared {
  bool counted = false;  // a recorded process used the device
};

// A time in which a process had none of its memory on the device.
struct Checkpointed {
  uint32_t process = kNone;
  int64_t begin_ns = 0;
  int64_t end_ns = kNever;
  friend bool operator==(const Checkpointed&, const Checkpointed&) = default;
};

// The rows have so much more than the device, since that time: nobody knows why.
struct Missing {
  When when;
  int64_t bytes = 0;  // less than nothing
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
  bool has_others = false;                // NVML knows of processes that are not recorded
  std::optional<int64_t> reading_offset;  // by how much readings differ from NVML's figure
  uint64_t contexts_not_measured = 0;     // made before anything said what was used before them
  // From the first of calls that only a later reading priced, to that reading.
  std::vector<Unsettled> unsettled;
};

// What the driver took by itself: contexts, code, local memory, arrays. No call says how much, so
// it follows from readings of free memory around calls and from NVML's figures.
//
//   free at reading 1           free at reading 2
//     |   cuModuleLoad  cuLaunchKernel   |      the difference, less the moves whose size is known,
//     |---------- 34 MiB less -----------|      is what these calls took: a Step of a Counter
//
// A pure function of one device's calls, called once all events are read. What no call explains is
// a row of its own, by name.
DevicePrices PriceDevice(const DeviceInput& input);

}  // namespace vramscope::resolve::price
