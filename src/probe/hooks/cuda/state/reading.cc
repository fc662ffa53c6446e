// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/state/reading.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "base/clock.h"
#include "format/records.h"
#include "probe/hooks/cuda/state/record.h"
#include "probe/session/session.h"
#include "probe/session/slot_table.h"
#include "probe/session/stream.h"
#include "probe/stack/stacks.h"

namespace vramscope::probe::cuda {

constinit std::atomic<bool> g_has_managed{false};

namespace {

// The figure written last, by device, and a bit for each device with explicit changes since.
constinit std::atomic<uint64_t> g_last_free[kMaxDevices]{};
constinit std::atomic<uint64_t> g_explicit_changes{0};
constinit std::atomic<uint32_t> g_read_again{0};  // how often launches were forgotten

// Estimates under way, and explicit changes that any thread, and this one, made meanwhile. An
// estimate that is never finished costs only its counting.
constinit std::atomic<int32_t> g_estimates{0};
constinit std::atomic<uint32_t> g_changes_in_estimates{0};
constinit VRAMSCOPE_TLS uint32_t t_own_changes = 0;

constinit std::atomic<uint64_t> g_readings_wanted{0};  // a bit for each device

// Streams being captured, by what CaptureKey() says, and how many there are.
struct Capture {
  std::atomic<uint64_t> context;  // which ends it
};
constexpr size_t kMaxCaptures = 512;  // further ones do not stop readings, and are counted
using CaptureTable = SlotTable<Capture, kMaxCaptures>;
constinit CaptureTable g_captures{};
constinit std::atomic<int32_t> g_capture_count{0};
// Threads that ask for the figure right now: a capture that begins waits for them.
constinit std::atomic<int32_t> g_readers{0};
constinit std::atomic<uint64_t> g_last_read{0};  // when the last one had asked

// The default and the per-thread stream have the same handle in every thread.
uint64_t CaptureKey(CUstream stream, bool per_thread) {
  const auto handle = reinterpret_cast<uintptr_t>(stream);
  constexpr uintptr_t kPerThread = 2;
  if (handle > kPerThread)
    return handle;
  if (handle == kPerThread || (handle == 0 && per_thread))
    return (static_cast<uint64_t>(syscall(SYS_gettid)) << 8) | kPerThread;
  return handle + CaptureTable::kFirstKey;
}

// False if it is in the table already, or the table is full.
bool AddCapture(uint64_t key, uint64_t context) {
  const auto inserted = g_captures.Insert(
      key, [=](Capture& capture) { capture.context.store(context, std::memory_order_relaxed); });
  if (inserted.outcome == CaptureTable::Outcome::kFull)
    CountLoss(format::Loss::kNoReading);
  return inserted.outcome == CaptureTable::Outcome::kInserted;
}

bool RemoveCapture(CaptureTable::Slot* slot, uint64_t key) {
  if (slot == nullptr || !g_captures.Remove(slot, key))
    return false;
  g_capture_count.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void CountInEstimates() {
  if (g_estimates.load(std::memory_order_relaxed) <= 0)
    return;
  g_changes_in_estimates.fetch_add(1, std::memory_order_relaxed);
  ++t_own_changes;
}

uint32_t OthersChanges() {
  return g_changes_in_estimates.load(std::memory_order_relaxed) - t_own_changes;
}

// Whether the figure says anything that the last one written did not.
bool IsNews(const Place& place, const FreeMemory& value) {
  if (place.device < 0 || place.device >= kMaxDevices)
    return true;
  const uint64_t bit = uint64_t{1} << place.device;
  const bool changes = (g_explicit_changes.fetch_and(~bit, std::memory_order_relaxed) & bit) != 0;
  return g_last_free[place.device].exchange(value.free, std::memory_order_relaxed) != value.free ||
         changes;
}

// Memory moved since the last figure, by no call that is recorded. A launch may take memory each
// time: functions that were read before are read once more. A few times, since that costs a launch
// of each function two readings. Managed memory moves like this all the time.
void ReadLaunchesAgain(const Place& place, const FreeMemory& value) {
  constexpr uint32_t kMostTimes = 8;
  if (!value.known || place.device < 0 || place.device >= kMaxDevices || MayPagesMove())
    return;
  const uint64_t last = g_last_free[place.device].load(std::memory_order_relaxed);
  const uint64_t changes = g_explicit_changes.load(std::memory_order_relaxed);
  if (last == 0 || last == value.free || ((changes >> place.device) & 1) != 0)
    return;
  if (g_read_again.load(std::memory_order_relaxed) < kMostTimes &&
      g_read_again.fetch_add(1, std::memory_order_relaxed) < kMostTimes)
    ForgetLaunches();
}

void WriteReading(Stream& stream, const Place& place, const FreeMemory& value) {
  stream.Append(format::Reading{.begin = value.begin,
                                .end = value.end,
                                .device = place.device,
                                .free = value.free,
                                .total = value.total});
}

void WriteIfNews(Stream& stream, const Place& place, const FreeMemory& value) {
  if (value.known && IsNews(place, value))
    WriteReading(stream, place, value);
}

Subject Complete(Subject subject) {
  if (subject.function == nullptr)
    return subject;
  subject.detail = Bits(subject.function);
  auto* const ask = DriverCall<CallId::cuFuncGetName>();
  if (ask == nullptr || ask(&subject.name, subject.function) != kSuccess)
    subject.name = nullptr;
  return subject;
}

// When pages of managed memory were read last.
constexpr int64_t kReadPagesEveryNs = 10'000'000;
constinit std::atomic<int64_t> g_pages_read_ns{0};

}  // namespace

FreeMemory ReadFreeMemory(const Place& place) {
  FreeMemory value;
  if (place.context == nullptr)
    return value;
  auto* const ask = DriverCall<CallId::cuMemGetInfo_v2>();
  if (ask == nullptr) {
    CountLoss(format::Loss::kNoReading);
    return value;
  }
  g_readers.fetch_add(1, std::memory_order_seq_cst);
  size_t free = 0, total = 0;
  if (!IsAnyStreamCapturing()) {
    value.begin = Now();
    value.known = ask(&free, &total) == kSuccess;
    value.end = Now();
    g_last_read.store(value.end, std::memory_order_seq_cst);
  }
  g_readers.fetch_sub(1, std::memory_order_seq_cst);
  value.free = free;
  value.total = total;
  return value;
}

bool WasReadSince(uint64_t begin) {
  return g_readers.load(std::memory_order_seq_cst) > 0 ||
         g_last_read.load(std::memory_order_seq_cst) > begin;
}

void TakeReading(const Place& place) {
  const FreeMemory value = ReadFreeMemory(place);
  if (!value.known)
    return;
  IsNews(place, value);
  RecordScope scope(Want::kAlways);
  if (scope)
    WriteReading(*scope, place, value);
}

void TakeNews(const Place& place) {
  const FreeMemory value = ReadFreeMemory(place);
  RecordScope scope(Want::kAlways);
  if (scope)
    WriteIfNews(*scope, place, value);
}

void RequestReading(int32_t device) {
  const uint64_t devices =
      device >= 0 && device < kMaxDevices ? uint64_t{1} << device : KnownDevices();
  g_readings_wanted.fetch_or(devices, std::memory_order_relaxed);
}

bool IsReadingWanted() {
  return g_readings_wanted.load(std::memory_order_relaxed) != 0;
}

void CatchUpReading(const Place& place) {
  if (!IsReadingWanted() || place.device < 0 || place.device >= kMaxDevices ||
      IsAnyStreamCapturing()) {
    return;
  }
  const uint64_t bit = uint64_t{1} << place.device;
  if ((g_readings_wanted.fetch_and(~bit, std::memory_order_relaxed) & bit) != 0)
    TakeReading(place);
}

// Looked at before it is written: the line stays shared between threads that allocate.
void NoteExplicitAlloc(int32_t device) {
  CountDriverMemory();
  CountInEstimates();
  if (device < 0 || device >= kMaxDevices)
    return;
  const uint64_t bit = uint64_t{1} << device;
  if ((g_explicit_changes.load(std::memory_order_relaxed) & bit) == 0)
    g_explicit_changes.fetch_or(bit, std::memory_order_relaxed);
}

void NoteExplicitFree() {
  CountInEstimates();
  if (g_explicit_changes.load(std::memory_order_relaxed) != ~uint64_t{0})
    g_explicit_changes.store(~uint64_t{0}, std::memory_order_relaxed);
}

void NoteCaptureBegin(CUstream stream, bool per_thread) {
  auto* const current = DriverCall<CallId::cuCtxGetCurrent>();
  CUcontext context = nullptr;
  if (current == nullptr || current(&context) != kSuccess)
    context = nullptr;
  if (!AddCapture(CaptureKey(stream, per_thread), Bits(context)))
    return;
  g_capture_count.fetch_add(1, std::memory_order_seq_cst);
  constexpr int kMaxTurns = 1000;
  for (int turn = 0; turn < kMaxTurns && g_readers.load(std::memory_order_seq_cst) > 0; ++turn)
    sched_yield();
}

void ForgetCapturesWithoutContext() {
  if (!IsAnyStreamCapturing() || HasContext(format::kNoDevice))
    return;
  g_captures.Visit([](CaptureTable::Slot& slot, uint64_t key) {
    RemoveCapture(&slot, key);
    return true;
  });
}

void ForgetCaptures(uint64_t context) {
  if (!IsAnyStreamCapturing())
    return;
  g_captures.Visit([context](CaptureTable::Slot& slot, uint64_t key) {
    if (slot.value.context.load(std::memory_order_relaxed) == context)
      RemoveCapture(&slot, key);
    return true;
  });
}

bool NoteCaptureEnd(CUstream stream, bool per_thread) {
  if (!IsAnyStreamCapturing())
    return false;
  const uint64_t key = CaptureKey(stream, per_thread);
  return RemoveCapture(g_captures.Find(key), key);
}

bool IsAnyStreamCapturing() {
  return g_capture_count.load(std::memory_order_seq_cst) > 0;
}

bool IsCapturing(CUstream stream, bool per_thread) {
  if (!IsAnyStreamCapturing())
    return false;
  auto* const ask = DriverCall<CallId::cuStreamIsCapturing>();
  if (ask == nullptr)
    return true;
  auto* const kPerThreadStream = reinterpret_cast<CUstream>(uintptr_t{2});
  CUstreamCaptureStatus status = 0;
  const CUresult result = ask(stream == nullptr && per_thread ? kPerThreadStream : stream, &status);
  return result == kSuccess && status == kCaptureStatusActive;
}

void ReadPagesAfterSynchronisation() {
  const int64_t now_ns = base::MonotonicNs();
  int64_t last_ns = g_pages_read_ns.load(std::memory_order_relaxed);
  if (now_ns - last_ns < kReadPagesEveryNs ||
      !g_pages_read_ns.compare_exchange_strong(last_ns, now_ns, std::memory_order_relaxed))
    return;
  const Place place = CurrentPlace();
  if (place.device >= 0)
    TakeNews(place);
}

FreeMemory BeginEstimate(const Place& place) {
  g_estimates.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t others_changes = OthersChanges();
  FreeMemory before = ReadFreeMemory(place);
  ReadLaunchesAgain(place, before);
  before.others_changes = others_changes;
  return before;
}

void FinishEstimate(HookId api,
                    const CallTimes& times,
                    CUresult result,
                    format::ImplicitKind kind,
                    WriteWhen when,
                    const Place& place,
                    const FreeMemory& before,
                    const Subject& subject) {
  // The call may have made, changed or ended the context.
  const Place after_place = CurrentPlace();
  const FreeMemory after = ReadFreeMemory(after_place);
  // Memory that one thread gives back may hide what the call took meanwhile.
  const bool hidden = OthersChanges() != before.others_changes;
  g_estimates.fetch_sub(1, std::memory_order_seq_cst);
  const bool both = before.known && after.known && place.device == after_place.device;
  if (!after.known)
    RequestReading(after_place.device);
  if (result == kOutOfMemoryError)
    RecordFailure(api, times, place, result, 0);

  const bool moved = both && before.free != after.free;
  const bool wanted = result == kSuccess && (!both || hidden || when == WriteWhen::kAlways);
  const Subject full = moved || wanted ? Complete(subject) : Subject{};
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  WriteIfNews(*scope, place, before);
  if (moved || wanted) {
    const Place& where = place.context != nullptr ? place : after_place;
    const size_t name_size = full.name != nullptr ? strnlen(full.name, kMaxNameBytes) : 0;
    scope->Append(format::Implicit{.begin = times.begin,
                                   .end = times.end,
                                   .api = scope->InternLiteral(HookName(api)),
                                   .kind = static_cast<uint64_t>(kind),
                                   .device = where.device,
                                   .context = Bits(where.context),
                                   .name = scope->InternString(full.name, name_size),
                                   .detail = full.detail,
                                   .stack = CapturePythonStack(*scope),
                                   .native = CaptureNativeStack(*scope)});
  }
  WriteIfNews(*scope, after_place, after);
}

void ForgetReadings(OtherThreads others) {
  for (auto& free : g_last_free)
    free.store(0, std::memory_order_relaxed);
  g_explicit_changes.store(0, std::memory_order_relaxed);
  g_readings_wanted.store(0, std::memory_order_relaxed);
  if (others == OtherThreads::kGone) {
    g_readers.store(0, std::memory_order_relaxed);
    g_estimates.store(0, std::memory_order_relaxed);
  }
  g_last_read.store(0, std::memory_order_relaxed);
  g_captures.Clear(others);
  g_capture_count.store(0, std::memory_order_relaxed);
}

}  // namespace vramscope::probe::cuda
