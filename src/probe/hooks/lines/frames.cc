// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <algorithm>

#include "base/compiler.h"
#include "probe/hooks/c10/watch.h"
#include "probe/hooks/lines/lines.h"

namespace vramscope::probe {

int64_t g_frames_lost = 0;

namespace {

constexpr int kDeepest = 1024;
constexpr int kThreads = 256;
constexpr uint32_t kMostMarks = 1 << 18;
constexpr int64_t kSampledExecutions = 3;

// The bytes that a device held when the line began, and the peak since.
struct OpenLine {
  int64_t allocated, bytes_given, bytes_back, blocks_given, blocks_back;
  int64_t peak_allocated, peak_reserved;
  // The peak of the call so far, and the line that had it.
  int64_t call_peak_allocated, call_peak_reserved;
  int32_t call_peak_line;
};

struct Call {
  Object code;
  Object frame;
  int32_t line;
  bool is_new;      // no line began in it yet but that of its start
  bool is_resumed;  // the line under way was begun, and counted, before
  bool marks_lost;
  uint32_t first_mark;
  uint64_t first_serial;
  OpenLine devices[kWatchedDevices];
};

// From that block on, the line is this one.
struct Mark {
  uint64_t serial;
  int32_t line;
};

// The calls of one thread, for as long as it has any: a thread that ends has none.
struct Thread {
  bool is_taken;
  int depth;
  int too_deep;  // calls beyond kDeepest
  uint32_t mark_count;
  Call* calls;
  Mark* marks;
};
constinit Thread g_threads[kThreads]{};
constinit int g_thread_limit = 0;  // those from here on were never taken
struct MyCalls {
  Thread* thread;
  uint32_t generation;  // ForgetCalls() leaves those of other threads behind
};
constinit VRAMSCOPE_TLS MyCalls t_calls{};
constinit uint32_t g_generation = 1;

// This thread's calls, at least one; nullptr if there is none.
VRAMSCOPE_ALWAYS_INLINE Thread* Mine() {
  return t_calls.generation == g_generation ? t_calls.thread : nullptr;
}

template <class Visit>
VRAMSCOPE_ALWAYS_INLINE void EachDevice(Visit visit) {
  for (uint32_t mask = g_watch_mask.load(std::memory_order_relaxed); mask != 0; mask &= mask - 1)
    visit(__builtin_ctz(mask));
}

Thread* TakeThread() {
  for (Thread& thread : g_threads) {
    if (thread.is_taken)
      continue;
    const auto map = [](size_t size_bytes) {
      return mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    };
    if (thread.calls == nullptr) {
      void* const calls = map(sizeof(Call) * kDeepest);
      void* const marks = map(sizeof(Mark) * kMostMarks);
      if (calls == MAP_FAILED || marks == MAP_FAILED)
        return nullptr;
      thread.calls = static_cast<Call*>(calls);
      thread.marks = static_cast<Mark*>(marks);
    }
    g_thread_limit = std::max(g_thread_limit, static_cast<int>(&thread - g_threads) + 1);
    thread.is_taken = true;
    thread.depth = thread.too_deep = 0;
    thread.mark_count = 0;
    return &thread;
  }
  return nullptr;
}

// Gives what happened since the last event to the lines that were open: one a thread. The calls
// around them learn it when they return.
void Settle() {
  EachDevice([](int device) {
    WatchedDevice& watched = g_watched[device];
    if (watched.peak_allocated.load(std::memory_order_relaxed) == kNoPeak)
      return;
    const int64_t allocated = watched.peak_allocated.exchange(kNoPeak, std::memory_order_relaxed);
    const int64_t reserved = watched.peak_reserved.exchange(kNoPeak, std::memory_order_relaxed);
    for (int i = 0; i < g_thread_limit; ++i) {
      const Thread& thread = g_threads[i];
      if (!thread.is_taken || thread.depth == 0)
        continue;
      OpenLine& open = thread.calls[thread.depth - 1].devices[device];
      open.peak_allocated = std::max(open.peak_allocated, allocated);
      open.peak_reserved = std::max(open.peak_reserved, reserved);
    }
  });
}

void Begin(OpenLine* open, int device) {
  const WatchedDevice& watched = g_watched[device];
  open->allocated = watched.allocated.load(std::memory_order_relaxed);
  open->bytes_given = watched.bytes_given.load(std::memory_order_relaxed);
  open->bytes_back = watched.bytes_back.load(std::memory_order_relaxed);
  open->blocks_given = watched.blocks_given.load(std::memory_order_relaxed);
  open->blocks_back = watched.blocks_back.load(std::memory_order_relaxed);
  open->peak_allocated = open->allocated;
  // Reserved memory can go without an event (empty_cache): the line's own events say more.
  open->peak_reserved = kNoPeak;
}

void MarkLine(Thread* thread, Call* call, int32_t line) {
  const uint64_t serial = WatchedSerial();
  const bool has_one = thread->mark_count > call->first_mark;
  if (has_one && thread->marks[thread->mark_count - 1].serial == serial) {
    thread->marks[thread->mark_count - 1].line = line;
  } else if (thread->mark_count == kMostMarks) {
    call->marks_lost = true;
  } else {
    thread->marks[thread->mark_count++] = {.serial = serial, .line = line};
  }
}

void OpenNewLine(Thread* thread, Call* call, int32_t line) {
  call->line = line;
  EachDevice([&](int device) { Begin(&call->devices[device], device); });
  MarkLine(thread, call, line);
}

// Calls the sampler; false if it left an exception for the program.
bool Sample(Object sampler, int32_t id, int32_t line) {
  const Owned own(g_api.PyLong_FromLong(id)), number(g_api.PyLong_FromLong(line));
  const Owned result(g_api.PyObject_CallFunctionObjArgs(sampler, own.get(), number.get(), nullptr));
  if (result)
    return true;
  if (g_api.PyErr_ExceptionMatches(*g_api.exception_type) == 0)
    return false;
  g_api.PyErr_Clear();
  return true;
}

void AddTo(LineFigures* figures, const OpenLine& open, int device, bool counts) {
  const WatchedDevice& watched = g_watched[device];
  const int64_t allocated = watched.allocated.load(std::memory_order_relaxed);
  const int64_t reserved =
      device == kWatchedCpu ? allocated : watched.reserved.load(std::memory_order_relaxed);
  const int64_t given = watched.bytes_given.load(std::memory_order_relaxed) - open.bytes_given;
  const int64_t back = watched.bytes_back.load(std::memory_order_relaxed) - open.bytes_back;
  const auto keep_most = [](int64_t* slot, int64_t value) { *slot = std::max(*slot, value); };
  figures->hits += counts ? 1 : 0;
  keep_most(&figures->peak_allocated, open.peak_allocated);
  const int64_t peak_reserved = device == kWatchedCpu           ? open.peak_allocated
                                : open.peak_reserved == kNoPeak ? reserved
                                                                : open.peak_reserved;
  keep_most(&figures->peak_reserved, peak_reserved);
  keep_most(&figures->allocated, allocated);
  keep_most(&figures->reserved, reserved);
  keep_most(&figures->bytes_given, given);
  keep_most(&figures->bytes_back, back);
  keep_most(&figures->blocks_given,
            watched.blocks_given.load(std::memory_order_relaxed) - open.blocks_given);
  keep_most(&figures->blocks_back,
            watched.blocks_back.load(std::memory_order_relaxed) - open.blocks_back);
  figures->net += allocated - open.allocated;
  figures->gross += given;
}

bool CloseLine(Call* call) {
  EachDevice([&](int device) {
    OpenLine& open = call->devices[device];
    if (open.peak_allocated > open.call_peak_allocated) {
      open.call_peak_allocated = open.peak_allocated;
      open.call_peak_line = call->line;
    }
    open.call_peak_reserved = std::max(open.call_peak_reserved, open.peak_reserved);
  });
  const bool counts = !call->is_resumed;
  call->is_resumed = false;
  bool ok = true;
  for (int32_t id = FirstFunction(call->code); id != -1;) {
    const Function& function = g_functions[id];
    const int32_t next = function.next;
    if (function.is_enabled) {
      int64_t hits = 0;
      for (int target = 0; target < function.target_count; ++target) {
        LineFigures* const figures = function.Line(target, call->line);
        if (figures == nullptr)
          continue;
        const int device = function.targets[target];
        AddTo(figures, call->devices[device], device, counts);
        hits = figures->hits;
      }
      // Last: it runs Python, which can change all this.
      if (function.sampler != nullptr && hits <= kSampledExecutions && ok)
        ok = Sample(function.sampler, id, call->line);
    }
    id = next;
  }
  return ok;
}

// ---- what a call leaves behind ------------------------------------------------------------------

struct Remains {
  const Mark* mark;
  const Mark* end;
  int32_t first_function;
};

void AddRemains(const LiveBlock& block, void* data) {
  auto* const remains = static_cast<Remains*>(data);
  // Both lists are in the order of time.
  while (remains->mark + 1 != remains->end && remains->mark[1].serial <= block.serial)
    ++remains->mark;
  for (int32_t id = remains->first_function; id != -1; id = g_functions[id].next) {
    const Function& function = g_functions[id];
    for (int target = 0; target < function.target_count; ++target) {
      LineFigures* const figures = function.Line(target, remains->mark->line);
      if (function.is_enabled && function.targets[target] == block.device && figures != nullptr)
        figures->grown_in_call += block.size;
    }
  }
}

void NoteRemains(const Thread& thread, const Call& call) {
  const Mark* const marks = thread.marks + call.first_mark;
  const Mark* const end = thread.marks + thread.mark_count;
  Remains remains{marks, end, FirstFunction(call.code)};
  bool complete = !call.marks_lost;
  if (marks != end)
    complete = VisitLiveBlocks(call.first_serial, AddRemains, &remains) && complete;
  for (int32_t id = remains.first_function; id != -1; id = g_functions[id].next) {
    const Function& function = g_functions[id];
    for (int target = 0; function.is_enabled && target < function.target_count; ++target) {
      FunctionFigures& whole = function.Of(target);
      ++whole.calls;
      whole.grown_unknown += complete ? 0 : 1;
      const OpenLine& open = call.devices[function.targets[target]];
      if (open.call_peak_allocated > whole.peak_allocated) {
        whole.peak_allocated = open.call_peak_allocated;
        whole.peak_line = open.call_peak_line;
      }
      for (const Mark* mark = marks; mark != end; ++mark) {
        LineFigures* const figures = function.Line(target, mark->line);
        if (figures == nullptr)
          continue;
        figures->grown = std::max(figures->grown, figures->grown_in_call);
        figures->grown_in_call = 0;
      }
    }
  }
}

// The innermost call is over. The one around it has seen all that it saw.
void Pop(Thread* thread) {
  const Call& ended = thread->calls[--thread->depth];
  thread->mark_count = ended.first_mark;
  if (thread->depth == 0) {
    thread->is_taken = false;
    t_calls.thread = nullptr;
    return;
  }
  Call& around = thread->calls[thread->depth - 1];
  EachDevice([&](int device) {
    OpenLine& open = around.devices[device];
    const OpenLine& inner = ended.devices[device];
    open.peak_allocated = std::max(open.peak_allocated, inner.call_peak_allocated);
    open.peak_reserved = std::max(open.peak_reserved, inner.call_peak_reserved);
  });
}

bool End(Thread* thread) {
  Call* const call = &thread->calls[thread->depth - 1];
  Settle();
  const bool ok = CloseLine(call);
  NoteRemains(*thread, *call);
  Pop(thread);
  return ok;
}

int DepthOf(const Thread& thread, Object code) {
  int depth = thread.depth;
  while (depth != 0 && thread.calls[depth - 1].code != code)
    --depth;
  return depth;
}

}  // namespace

void EnterFunction(Object code, Object frame, int32_t line, bool is_resumed) {
  if (FirstFunction(code) == -1)
    return;
  if (Mine() == nullptr)
    t_calls = {TakeThread(), g_generation};
  Thread* const thread = t_calls.thread;
  if (thread == nullptr) {
    ++g_frames_lost;
    return;
  }
  if (thread->depth == kDeepest) {
    ++thread->too_deep;
    ++g_frames_lost;
    return;
  }
  Settle();
  Call* const call = &thread->calls[thread->depth++];
  call->code = code;
  call->frame = frame;
  call->is_new = !is_resumed;
  call->is_resumed = is_resumed;
  call->marks_lost = false;
  call->first_mark = thread->mark_count;
  call->first_serial = WatchedSerial();
  for (OpenLine& open : call->devices) {
    open.call_peak_allocated = open.call_peak_reserved = kNoPeak;
    open.call_peak_line = line;
  }
  OpenNewLine(thread, call, line);
}

bool EnterLine(Object code, int32_t line) {
  Thread* const thread = Mine();
  if (thread != nullptr && VRAMSCOPE_UNLIKELY(thread->too_deep != 0))
    return true;
  if (VRAMSCOPE_UNLIKELY(thread == nullptr || thread->calls[thread->depth - 1].code != code)) {
    const int depth = thread != nullptr ? DepthOf(*thread, code) : 0;
    if (depth == 0) {
      // A call that was under way when its function was chosen.
      EnterFunction(code, nullptr, line, false);
      if (Thread* const mine = Mine(); mine != nullptr)
        mine->calls[mine->depth - 1].is_new = false;
      return true;
    }
    // The frames above it ended without an event, as greenlets do.
    while (thread->depth > depth)
      End(thread);
  }
  Call* const call = &thread->calls[thread->depth - 1];
  const bool goes_on = call->is_new && call->line == line;
  call->is_new = false;
  // A body in the line of its `def`, as of a lambda, is not a second execution of that line.
  if (VRAMSCOPE_UNLIKELY(goes_on))
    return true;
  Settle();
  const bool ok = CloseLine(call);
  // The sampler may have ended the profile, and with it this call.
  if (Mine() == thread)
    OpenNewLine(thread, &thread->calls[thread->depth - 1], line);
  return ok;
}

bool LeaveFunction(Object code) {
  Thread* const thread = Mine();
  if (thread == nullptr)
    return true;
  if (thread->too_deep != 0) {
    thread->too_deep -= FirstFunction(code) != -1 ? 1 : 0;
    return true;
  }
  const int depth = DepthOf(*thread, code);
  bool ok = true;
  while (depth != 0 && Mine() == thread && thread->depth >= depth)
    ok = End(thread) && ok;
  return ok;
}

Object InnermostCode(Object frame) {
  const Thread* const thread = Mine();
  if (thread == nullptr || thread->calls[thread->depth - 1].frame != frame)
    return nullptr;
  return thread->calls[thread->depth - 1].code;
}

bool IsTooDeep() {
  const Thread* const thread = Mine();
  return thread != nullptr && thread->too_deep != 0;
}

void ForgetCalls() {
  ++g_generation;
  for (Thread& thread : g_threads)
    thread.is_taken = false;
}

void BeginDevice(int device) {
  for (Thread& thread : g_threads) {
    for (int depth = 0; thread.is_taken && depth < thread.depth; ++depth) {
      OpenLine* const open = &thread.calls[depth].devices[device];
      Begin(open, device);
      open->call_peak_allocated = open->call_peak_reserved = kNoPeak;
      open->call_peak_line = thread.calls[depth].line;
    }
  }
}

}  // namespace vramscope::probe
