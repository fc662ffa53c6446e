// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "format/enums.h"
#include "format/records.h"
#include "probe/hooks/cuda/cuda.h"
#include "probe/hooks/cuda/entry_points/pools.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/state/handle_set.h"
#include "probe/hooks/cuda/state/reading.h"
#include "probe/hooks/cuda/state/record.h"
#include "probe/session/stream.h"
#include "probe/stack/stacks.h"

// Graphs: the executable takes memory when it is made or uploaded, its allocation nodes take theirs
// out of the device's graph memory when it is launched.
namespace vramscope::probe::cuda {
namespace {

constinit HandleSet<4096> g_launched_graphs{};

// Addresses that graphs gave out, and whether there ever was one.
constinit HandleSet<16384> g_graph_addresses{};
constinit std::atomic<bool> g_has_graph_memory{false};

constinit std::atomic<void (*)(bool captured)> g_observer{nullptr};

// As with pools, one thread at a time asks, and asks again where another one wanted to.
struct GraphFigure {
  std::atomic<bool> busy;
  EarliestPendingChange stale;
  std::atomic<uint64_t> reserved;
  std::atomic<uint64_t> used;
};
constinit GraphFigure g_graph_figures[kMaxDevices]{};

bool IsInTable(int32_t device) {
  return device >= 0 && device < kMaxDevices;
}

// As the one thread that has the figure, which it gives back.
void AskGraphPool(int32_t device, uint64_t since, GraphFigure* figure) {
  auto* const ask = DriverCall<CallId::cuDeviceGetGraphMemAttribute>();
  uint64_t reserved = 0, used = 0;
  const bool known = ask != nullptr && ask(device, kGraphReservedCurrent, &reserved) == kSuccess &&
                     ask(device, kGraphUsedCurrent, &used) == kSuccess;
  const uint64_t time = Now();
  bool write = false;
  if (known) {
    const uint64_t last_reserved = figure->reserved.exchange(reserved, std::memory_order_relaxed);
    const uint64_t last_used = figure->used.exchange(used, std::memory_order_relaxed);
    // Also what did not change, where a reading may show that it had: as with pools.
    write = used != last_used || reserved != last_reserved || WasReadSince(since);
  }
  figure->busy.store(false, std::memory_order_seq_cst);
  if (known && reserved != 0)
    g_has_graph_memory.store(true, std::memory_order_relaxed);
  if (!write)
    return;
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  NoteExplicitAlloc(device);
  scope->Append(format::PoolReading{.time = time,
                                    .pool = 0,
                                    .device = device,
                                    .reserved = reserved,
                                    .used = used,
                                    .since = time - since});
}

template <HookId kId, class... Args>
CUresult Instantiate(CUgraphExec* graph, Args... args) {
  return CallEstimated<kId>(
      format::ImplicitKind::kGraph, WriteWhen::kMoved,
      [=] { return Subject{.name = "instantiate", .detail = Bits(*graph)}; }, graph, args...);
}

// Between readings, and the graph memory after it.
template <HookId kId, class... Args>
CUresult ChangeGraph(const char* what, CUgraphExec graph, Args... args) {
  HookCall<kId> call;
  if (!call.watching())
    return call(graph, args...);
  const Place place = CurrentPlace();
  const FreeMemory before = BeginEstimate(place);
  const CUresult result = call(graph, args...);
  ReadGraphPool(place.device);
  FinishEstimate(kId, call.times(), result, format::ImplicitKind::kGraph, WriteWhen::kMoved, place,
                 before, {.name = what, .detail = Bits(graph)});
  return result;
}

template <HookId kId>
CUresult UploadGraph(CUgraphExec graph, CUstream stream) {
  return ChangeGraph<kId>("upload", graph, stream);
}

template <HookId kId, class... Args>
CUresult UpdateGraph(CUgraphExec graph, Args... args) {
  return ChangeGraph<kId>("update", graph, args...);
}

template <HookId kId>
CUresult DestroyGraph(CUgraphExec graph) {
  g_launched_graphs.Erase(Bits(graph));
  return ChangeGraph<kId>("destroy", graph);
}

template <HookId kId>
CUresult TrimGraphMemory(CUdevice device) {
  HookCall<kId> call;
  if (!call.watching())
    return call(device);
  const Place place = CurrentPlace();
  const FreeMemory before = BeginEstimate(place);
  const CUresult result = call(device);
  ReadGraphPool(device);
  FinishEstimate(kId, call.times(), result, format::ImplicitKind::kGraph, WriteWhen::kMoved, place,
                 before, {.name = "trim"});
  // Graphs that were launched already will take the memory anew.
  g_launched_graphs.Clear();
  return result;
}

void RecordCapture(bool begins) {
  constexpr size_t kLongestSize = 128;
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  format::Capture record{.time = Now(), .begins = begins ? 1u : 0u};
  if (begins) {
    char size[kLongestSize];
    const size_t length = DescribeBatch(size, sizeof size);
    record.stack = CapturePythonStack(*scope);
    record.size = length == 0 ? 0 : scope->InternString(size, length);
  }
  scope->Append(record);
}

void TellObserver(bool captured) {
  if (const auto observe = g_observer.load(std::memory_order_relaxed))
    observe(captured);
}

template <HookId kId>
CUresult LaunchGraph(CUgraphExec graph, CUstream stream) {
  TellObserver(false);
  if (g_launched_graphs.Contains(Bits(graph))) {
    HookCall<kId> call;
    const CUresult result = call(graph, stream);
    // Its nodes may find their memory in use by another graph's, and take more.
    if (HasGraphMemory() && call.watching())
      ReadGraphPool(CurrentPlace().device);
    return result;
  }
  const CUresult result = ChangeGraph<kId>("launch", graph, stream);
  if (result == kSuccess && IsRecording())
    g_launched_graphs.Insert(Bits(graph));
  return result;
}

template <HookId kId, class... Args>
CUresult BeginCapture(CUstream stream, Args... args) {
  constexpr bool kPerThread = kIsPerThread<kId>;
  HookCall<kId> call;
  // Before the call: another thread's reading must not meet the capture. A capture that is refused
  // is taken off again.
  NoteCaptureBegin(stream, kPerThread);
  WaitForPoolReaders();
  const CUresult result = call(stream, args...);
  if (result != kSuccess && !IsCapturing(stream, kPerThread))
    NoteCaptureEnd(stream, kPerThread);
  else if (result == kSuccess && call.watching())
    RecordCapture(true);
  return result;
}

template <HookId kId>
CUresult EndCapture(CUstream stream, CUgraph* graph) {
  constexpr bool kPerThread = kIsPerThread<kId>;
  HookCall<kId> call;
  const CUresult result = call(stream, graph);
  // An invalidated capture ends with an error; another thread's capture continues.
  if (result == kSuccess || !IsCapturing(stream, kPerThread))
    NoteCaptureEnd(stream, kPerThread);
  TellObserver(true);
  if (!call.watching())
    return result;
  RecordCapture(false);
  if (!IsAnyStreamCapturing()) {
    const Place place = CurrentPlace();
    ReadPoolsAfterSynchronisation();
    if (IsInTable(place.device) && g_graph_figures[place.device].stale.IsSet())
      ReadGraphPool(place.device);
    CatchUpReading(place);
  }
  return result;
}

template <HookId kId, class... Args>
CUresult AddNode(Args... args) {
  HookCall<kId> call;
  const CUresult result = call(args...);
  if (call.watching() && result == kSuccess) {
    const auto* const parameters = LastOf(args...);
    if constexpr (requires { parameters->alloc; }) {
      if (parameters->type == kNodeMemAlloc)
        NoteGraphAddress(parameters->alloc.dptr);
    } else {
      NoteGraphAddress(parameters->dptr);
    }
  }
  return result;
}

}  // namespace

void NoteGraphAddress(uint64_t address) {
  g_graph_addresses.Insert(address);
  g_has_graph_memory.store(true, std::memory_order_relaxed);
}

bool TakeGraphAddress(uint64_t address) {
  return HasGraphMemory() && g_graph_addresses.Erase(address);
}

bool HasGraphMemory() {
  return g_has_graph_memory.load(std::memory_order_relaxed);
}

void ReadGraphPool(int32_t device) {
  if (!IsInTable(device))
    return;
  GraphFigure& figure = g_graph_figures[device];
  uint64_t since = t_cuda_call_begin;
  constexpr int kMaxTurns = 8;
  for (int turn = 0; turn < kMaxTurns; ++turn) {
    if (figure.busy.exchange(true, std::memory_order_seq_cst)) {
      figure.stale.Note(since);
      if (figure.busy.load(std::memory_order_seq_cst))
        return;  // that thread sees it
      continue;
    }
    if (IsAnyStreamCapturing()) {
      figure.stale.Note(since);
      figure.busy.store(false, std::memory_order_seq_cst);
      return;
    }
    since = figure.stale.Take(since);
    AskGraphPool(device, since, &figure);
    if (!figure.stale.IsSet())
      return;
  }
}

void ForgetGraphs(OtherThreads others) {
  for (auto& figure : g_graph_figures) {
    if (others == OtherThreads::kGone)
      figure.busy.store(false, std::memory_order_relaxed);
    figure.stale.Clear();
    figure.reserved.store(0, std::memory_order_relaxed);
    figure.used.store(0, std::memory_order_relaxed);
  }
  g_graph_addresses.Clear();
  g_launched_graphs.Clear();
  g_has_graph_memory.store(false, std::memory_order_relaxed);
}

}  // namespace vramscope::probe::cuda

void vramscope::probe::CudaObserveGraphs(void (*observe)(bool captured)) {
  cuda::g_observer.store(observe, std::memory_order_relaxed);
}

#define VRAMSCOPE_CUDA_IS_GRAPHS 1
#include "probe/hooks/cuda/define_wrappers.h"
#undef VRAMSCOPE_CUDA_IS_GRAPHS
