// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "probe/hooks/pjrt/plugins.h"

// What XLA itself says that it has in use, beside what is recorded. The rest is memory without a
// buffer: XLA gives out larger pieces than were asked for, and keeps some for itself. It is read
// only while no call is under way and no program runs, and is recorded as a block of its own.
namespace vramscope::probe::pjrt {

// Calls of the program that give out memory or take it back.
extern constinit std::atomic<int32_t> g_under_way;
class UnderWay {
 public:
  UnderWay() { g_under_way.fetch_add(1, std::memory_order_acq_rel); }
  ~UnderWay() { g_under_way.fetch_sub(1, std::memory_order_acq_rel); }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;
};

// What XLA says of a device's pool. False if it does not.
struct PoolFigures {
  uint64_t in_use = 0;
  uint64_t peak = 0;  // of `in_use`; 0: unknown
};
bool AskPool(const Plugin& plugin, const void* device, PoolFigures* figures);

// Whether this thread's call is the only one under way.
inline bool IsAlone() {
  return g_under_way.load(std::memory_order_acquire) == 1;
}

// Recorded memory was given out (or, negative, given back).
void CountGivenOut(int32_t device, int64_t bytes);
// A device may be asked until its client is destroyed.
void NoteDevice(const Plugin& plugin, const void* device, int32_t ordinal);
// Reads all devices, some times a second at most.
void MaybeRead();

// Other threads run on: nothing of the last recording is recorded now.
void ForgetReadings();
// A child after fork: nothing may be asked.
void ForgetDevices();
// buffers.cc: devices and memories of a client that is destroyed.
void ForgetPlaces();

}  // namespace vramscope::probe::pjrt
