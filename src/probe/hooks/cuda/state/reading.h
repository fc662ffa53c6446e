// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "format/enums.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/state/record.h"

// The driver's own figure of free memory, read around the calls that may take or give back memory
// without saying so. All readings of the process form one series; what changed between two of them,
// less the allocations recorded in between, belongs to the calls that lie there.
//
// Never without a current context and never while a stream of this process is being captured: such
// a call has no readings of its own in the trace, and the next possible reading closes the
// interval.
namespace vramscope::probe::cuda {

struct FreeMemory {
  bool known = false;
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t free = 0;
  uint64_t total = 0;
  uint32_t others_changes =
      0;  // explicit ones of other threads, counted while estimates are under way
};

FreeMemory ReadFreeMemory(const Place& place);
// Whether any thread has asked for the figure since then, or does so now.
bool WasReadSince(uint64_t begin);

// Reads now, and writes what was read.
void TakeReading(const Place& place);
// The same, where it says anything that the last one did not.
void TakeNews(const Place& place);
// The next call that finds a context of `device` current is to take a reading: CatchUpReading()
// does. kNoDevice: on every device that was seen.
void RequestReading(int32_t device);
bool IsReadingWanted();
void CatchUpReading(const Place& place);
// An explicit allocation or free was recorded: the next figure is worth writing even if it is the
// same as the last one. A free does not say on which device it is.
void NoteExplicitAlloc(int32_t device);
void NoteExplicitFree();

// Since when (ticks) a figure may have changed that could not be read then: another thread was just
// reading it, or a stream was captured. Safe in any thread.
class EarliestPendingChange {
 public:
  // Keeps the earliest.
  void Note(uint64_t since) {
    uint64_t first = since_.load(std::memory_order_seq_cst);
    while ((first == 0 || since < first) &&
           !since_.compare_exchange_weak(first, since, std::memory_order_seq_cst)) {
    }
  }
  // The earlier of that and `since`.
  uint64_t Earliest(uint64_t since) const {
    const uint64_t first = since_.load(std::memory_order_seq_cst);
    return first != 0 && first < since ? first : since;
  }
  bool IsSet() const { return since_.load(std::memory_order_seq_cst) != 0; }
  // A caller that reads the figure now takes the earlier of that and `since`.
  uint64_t Take(uint64_t since) {
    const uint64_t first = since_.exchange(0, std::memory_order_seq_cst);
    return first != 0 && first < since ? first : since;
  }
  void Clear() { since_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> since_{0};
};

// ---- managed memory
// Kernels that touch it move its pages to the device while they run, and no call says so. A process
// that has none pays one load a call that synchronises.
extern std::atomic<bool> g_has_managed;

inline void NoteManagedAlloc() {
  if (!g_has_managed.load(std::memory_order_relaxed))
    g_has_managed.store(true, std::memory_order_relaxed);
}
inline bool MayPagesMove() {
  return g_has_managed.load(std::memory_order_relaxed);
}
// The kernels before a call that synchronised are done: reads what their pages take, 100 times a
// second at most.
void ReadPagesAfterSynchronisation();

// ---- functions
// Some were read at their first launch or use, see entry_points/code.cc: the next one is read anew.
void ForgetLaunches();
void ForgetFunctions();

// ---- stream capture
// Returns when no thread asks for the figure any more, or after a bounded while.
void NoteCaptureBegin(CUstream stream, bool per_thread);
// False if it was not known.
bool NoteCaptureEnd(CUstream stream, bool per_thread);
// Captures of a context that is gone never end. Without any context there is none.
void ForgetCaptures(uint64_t context);
void ForgetCapturesWithoutContext();
bool IsAnyStreamCapturing();
// Whether what is put into this stream now becomes a graph instead of happening.
bool IsCapturing(CUstream stream, bool per_thread);

// ---- estimates: what a call took, by the free memory before and after it
// The fields of an Implicit record besides its kind. The name need only live until it is written.
struct Subject {
  const char* name = nullptr;
  uint64_t detail = 0;
  CUfunction function = nullptr;  // gives name and detail, if the record is written at all
};

enum class WriteWhen {
  kMoved,   // the figure moved, may have but for another thread's call, or could not be read
  kAlways,  // rare calls whose being there says something
};

// The figure before a call; FinishEstimate() follows after it.
FreeMemory BeginEstimate(const Place& place);
void FinishEstimate(HookId api,
                    const CallTimes& times,
                    CUresult result,
                    format::ImplicitKind kind,
                    WriteWhen when,
                    const Place& place,
                    const FreeMemory& before,
                    const Subject& subject);

// Calls the real entry between two readings. `subject` is called after it has succeeded.
template <HookId kId, class GetSubject, class... Args>
CUresult CallEstimated(format::ImplicitKind kind,
                       WriteWhen when,
                       GetSubject subject,
                       Args... args) {
  HookCall<kId> call;
  if (!call.watching())
    return call(args...);
  const Place place = CurrentPlace();
  const FreeMemory before = BeginEstimate(place);
  const CUresult result = call(args...);
  FinishEstimate(kId, call.times(), result, kind, when, place, before,
                 result == kSuccess ? subject() : Subject{});
  return result;
}

// The same for calls whose memory does not belong to one object.
template <HookId kId, class... Args>
CUresult CallOther(Args... args) {
  return CallEstimated<kId>(
      format::ImplicitKind::kOther, WriteWhen::kMoved, [] { return Subject{}; }, args...);
}

void ForgetReadings(OtherThreads others);

}  // namespace vramscope::probe::cuda
