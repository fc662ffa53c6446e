// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/pjrt/readings.h"

#include <sched.h>
#include <time.h>

#include <algorithm>

#include "base/clock.h"
#include "format/records.h"
#include "probe/hooks/pjrt/recorded.h"
#include "probe/session/stream.h"

namespace vramscope::probe::pjrt {

constinit std::atomic<int32_t> g_under_way{0};

namespace {

constexpr int32_t kMostOrdinals = 16;
constexpr size_t kMostKnownDevices = 32;
constexpr int64_t kReadEveryNs = 100'000'000;
constexpr char kRest[] = "in use by XLA beyond its arrays";

struct Account {
  std::atomic<int64_t> given_out;  // that is recorded
  uint64_t rest;                   // as recorded; by one thread at a time
};
constinit Account g_accounts[kMostOrdinals]{};

struct Device {
  std::atomic<const void*> device;
  std::atomic<const Plugin*> plugin;
  std::atomic<int32_t> ordinal;
  std::atomic<bool> is_claimed;
};
constinit Device g_known[kMostKnownDevices]{};

// A client is destroyed only while nobody reads, and nobody begins to read meanwhile.
constinit std::atomic<int32_t> g_readers{0};
constinit std::atomic<int32_t> g_destroying{0};
constinit std::atomic<bool> g_is_reading{false};
constinit std::atomic<int64_t> g_due_ns{0};

bool IsQuiet() {
  return g_under_way.load(std::memory_order_acquire) == 0 && !IsEndingTemporary();
}

// The pools' used bytes of one device number, of all plugins. False if one does not say.
bool AskInUse(int32_t ordinal, uint64_t* bytes) {
  bool has_any = false;
  *bytes = 0;
  for (const Device& known : g_known) {
    const void* const device = known.device.load(std::memory_order_acquire);
    if (device == nullptr || known.ordinal.load(std::memory_order_relaxed) != ordinal)
      continue;
    PoolFigures figures;
    if (!AskPool(*known.plugin.load(std::memory_order_relaxed), device, &figures))
      return false;
    *bytes += figures.in_use;
    has_any = true;
  }
  return has_any;
}

void Record(int32_t ordinal, uint64_t rest) {
  Account& account = g_accounts[ordinal];
  if (account.rest == rest)
    return;
  RecordScope scope(Want::kTensor);
  if (!scope)
    return;
  const uint64_t now = Now();
  if (account.rest != 0)
    scope->Append(format::BlockFree{.time = now,
                                    .address = reinterpret_cast<uintptr_t>(&account),
                                    .size = 0,
                                    .device = ordinal});
  if (rest != 0)
    scope->Append(
        format::XlaBlock{.time = now,
                         .address = reinterpret_cast<uintptr_t>(&account),
                         .size = rest,
                         .requested = rest,
                         .device = ordinal,
                         .kind = static_cast<uint64_t>(format::XlaBlockKind::kUninitialized),
                         .name = scope->InternString(kRest, sizeof kRest - 1)});
  account.rest = rest;
}

// A reading takes microseconds and waits for nothing of the program's. A reader without a core may
// take longer.
void WaitForReaders() {
  constexpr int kMostYields = 1000;
  constexpr timespec kPause{0, 100'000};
  for (int turn = 0; g_readers.load(std::memory_order_seq_cst) != 0; ++turn) {
    if (turn < kMostYields)
      sched_yield();
    else
      nanosleep(&kPause, nullptr);
  }
}

// False if not all devices could be read.
bool Read() {
  if (!IsQuiet() || g_is_reading.exchange(true, std::memory_order_acq_rel))
    return false;
  bool is_whole = true;
  g_readers.fetch_add(1, std::memory_order_seq_cst);
  for (int32_t ordinal = 0;
       ordinal < kMostOrdinals && g_destroying.load(std::memory_order_seq_cst) == 0; ++ordinal) {
    Account& account = g_accounts[ordinal];
    const int64_t before = account.given_out.load(std::memory_order_acquire);
    uint64_t in_use = 0;
    // Something that changes meanwhile makes the reading useless.
    if (!AskInUse(ordinal, &in_use))
      continue;
    if (!IsQuiet() || account.given_out.load(std::memory_order_acquire) != before) {
      is_whole = false;
      continue;
    }
    int64_t rest = static_cast<int64_t>(in_use) - before;
    // XLA has taken back what the last program needed.
    if (rest < 0 && EndTemporaryOf(ordinal))
      rest = static_cast<int64_t>(in_use) - account.given_out.load(std::memory_order_acquire);
    Record(ordinal, rest > 0 ? static_cast<uint64_t>(rest) : 0);
  }
  g_readers.fetch_sub(1, std::memory_order_seq_cst);
  g_is_reading.store(false, std::memory_order_release);
  return is_whole;
}

}  // namespace

bool AskPool(const Plugin& plugin, const void* device, PoolFigures* figures) {
  constexpr size_t kInUse = 3, kPeak = 4, kPeakIsSet = 5;
  Arguments<32> stats(device);
  if (!plugin.Ask(Call::kDevice_MemoryStats, &stats))
    return false;
  figures->in_use = static_cast<uint64_t>(std::max<int64_t>(stats.Get<int64_t>(kInUse), 0));
  figures->peak = stats.Get<bool>(kPeakIsSet) ? stats.words[kPeak] : 0;
  return true;
}

void CountGivenOut(int32_t device, int64_t bytes) {
  if (device >= 0 && device < kMostOrdinals)
    g_accounts[device].given_out.fetch_add(bytes, std::memory_order_acq_rel);
}

void NoteDevice(const Plugin& plugin, const void* device, int32_t ordinal) {
  if (ordinal >= kMostOrdinals)
    return;
  for (const Device& known : g_known) {
    if (known.device.load(std::memory_order_acquire) == device)
      return;
  }
  for (Device& known : g_known) {
    if (known.is_claimed.exchange(true, std::memory_order_acq_rel))
      continue;
    known.plugin.store(&plugin, std::memory_order_relaxed);
    known.ordinal.store(ordinal, std::memory_order_relaxed);
    known.device.store(device, std::memory_order_release);
    return;
  }
}

void MaybeRead() {
  const int64_t now_ns = base::MonotonicNs();
  int64_t due_ns = g_due_ns.load(std::memory_order_relaxed);
  if (now_ns >= due_ns &&
      g_due_ns.compare_exchange_strong(due_ns, now_ns + kReadEveryNs, std::memory_order_relaxed))
    Read();
}

void ForgetDevices() {
  for (Device& known : g_known) {
    known.device.store(nullptr, std::memory_order_release);
    known.is_claimed.store(false, std::memory_order_release);
  }
  ForgetPlaces();
  ForgetReadings();
  g_under_way.store(0, std::memory_order_relaxed);
  g_readers.store(0, std::memory_order_relaxed);
  g_destroying.store(0, std::memory_order_relaxed);
  g_is_reading.store(false, std::memory_order_relaxed);
}

void ForgetReadings() {
  for (Account& account : g_accounts) {
    account.given_out.store(0, std::memory_order_relaxed);
    account.rest = 0;
  }
}

void* DestroyClient(const Plugin& plugin, Word* arguments) {
  g_destroying.fetch_add(1, std::memory_order_seq_cst);
  WaitForReaders();
  for (Device& known : g_known) {
    // Its pool goes, and what is in use beyond arrays with it.
    if (known.device.load(std::memory_order_acquire) != nullptr)
      Record(known.ordinal.load(std::memory_order_relaxed), 0);
    known.device.store(nullptr, std::memory_order_release);
    known.is_claimed.store(false, std::memory_order_release);
  }
  ForgetPlaces();
  void* const error = plugin.Get(Call::kClient_Destroy)(arguments);
  g_destroying.fetch_sub(1, std::memory_order_seq_cst);
  return error;
}

}  // namespace vramscope::probe::pjrt

namespace vramscope::probe {

void PjrtMarkReading() {
  // A thread of XLA's may be just ending a program's memory.
  constexpr int64_t kWaitNs = 100'000;
  const int64_t until_ns = base::MonotonicNs() + kWaitNs;
  while (!SessionIsOff() && !pjrt::Read() && base::MonotonicNs() < until_ns)
    sched_yield();
}

}  // namespace vramscope::probe
