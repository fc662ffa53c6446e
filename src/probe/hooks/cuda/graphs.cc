// SPDX-License-Identifier: Apache-2.0
#include "format/enums.h"
#include "probe/hooks/cuda/context.h"
#include "probe/hooks/cuda/handle_set.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/pools.h"
#include "probe/hooks/cuda/reading.h"
#include "probe/hooks/cuda/record.h"

// Graphs: the executable takes memory when it is made or uploaded, its allocation nodes take theirs
// out of the device's graph memory when it is launched.
namespace vramscope::probe::cuda {
namespace {

constinit HandleSet<4096> g_launched_graphs{};

template <HookId kId, class... Args>
CUresult Instantiate(CUgraphExec* graph, Args... args) {
  const CUresult result = CallBracketed<kId>(
      format::ImplicitKind::kGraph, WriteWhen::kMoved,
      [=] { return Subject{.name = "instantiate", .detail = Bits(*graph)}; }, graph, args...);
  return result;
}

// Between readings, and the graph memory after it.
template <HookId kId, class... Args>
CUresult ChangeGraph(const char* what, uint64_t detail, Args... args) {
  HookCall<kId> call;
  if (!call.watching())
    return call(args...);
  const Place place = CurrentPlace();
  const FreeMemory before = ReadFreeMemory(place);
  const CUresult result = call(args...);
  ReadGraphPool(place.device);
  FinishBracket(kId, call.times(), result, format::ImplicitKind::kGraph, WriteWhen::kMoved, place,
                before, {.name = what, .detail = detail});
  return result;
}

template <HookId kId>
CUresult LaunchGraph(CUgraphExec graph, CUstream stream) {
  if (g_launched_graphs.Contains(Bits(graph))) {
    HookCall<kId> call;
    return call(graph, stream);
  }
  const CUresult result = ChangeGraph<kId>("launch", Bits(graph), graph, stream);
  if (result == kSuccess && IsRecording())
    g_launched_graphs.Insert(Bits(graph));
  return result;
}

template <HookId kId, class... Args>
CUresult BeginCapture(bool per_thread, CUstream stream, Args... args) {
  HookCall<kId> call;
  // Before the call: another thread's reading must not meet the capture. A capture that is refused
  // is taken off again.
  NoteCaptureBegin(stream, per_thread);
  const CUresult result = call(stream, args...);
  if (result != kSuccess && !IsCapturing(stream, per_thread))
    NoteCaptureEnd(stream, per_thread);
  return result;
}

template <HookId kId>
CUresult EndCapture(bool per_thread, CUstream stream, CUgraph* graph) {
  HookCall<kId> call;
  const CUresult result = call(stream, graph);
  // A capture that was invalidated ends with an error; one of another thread goes on.
  if (result == kSuccess || !IsCapturing(stream, per_thread))
    NoteCaptureEnd(stream, per_thread);
  if (call.watching())
    CatchUpReading(CurrentPlace());
  return result;
}

}  // namespace

VRAMSCOPE_CUDA_WRAPPER(cuGraphInstantiate)
(CUgraphExec* executable, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_bytes) {
  return Instantiate<HookId::cuGraphInstantiate>(executable, graph, error_node, log, log_bytes);
}

VRAMSCOPE_CUDA_WRAPPER(cuGraphInstantiate_v2)
(CUgraphExec* executable, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_bytes) {
  return Instantiate<HookId::cuGraphInstantiate_v2>(executable, graph, error_node, log, log_bytes);
}

VRAMSCOPE_CUDA_WRAPPER(cuGraphInstantiateWithFlags)
(CUgraphExec* executable, CUgraph graph, unsigned long long flags) {
  return Instantiate<HookId::cuGraphInstantiateWithFlags>(executable, graph, flags);
}

VRAMSCOPE_CUDA_WRAPPER(cuGraphInstantiateWithParams)
(CUgraphExec* executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  return Instantiate<HookId::cuGraphInstantiateWithParams>(executable, graph, parameters);
}

VRAMSCOPE_CUDA_WRAPPER(cuGraphInstantiateWithParams_ptsz)
(CUgraphExec* executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  return Instantiate<HookId::cuGraphInstantiateWithParams_ptsz>(executable, graph, parameters);
}

VRAMSCOPE_CUDA_WRAPPER(cuGraphUpload)(CUgraphExec graph, CUstream stream) {
  return ChangeGraph<HookId::cuGraphUpload>("upload", Bits(graph), graph, stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuGraphUpload_ptsz)(CUgraphExec graph, CUstream stream) {
  return ChangeGraph<HookId::cuGraphUpload_ptsz>("upload", Bits(graph), graph, stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuGraphLaunch)(CUgraphExec graph, CUstream stream) {
  return LaunchGraph<HookId::cuGraphLaunch>(graph, stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuGraphLaunch_ptsz)(CUgraphExec graph, CUstream stream) {
  return LaunchGraph<HookId::cuGraphLaunch_ptsz>(graph, stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuGraphExecUpdate)
(CUgraphExec executable,
 CUgraph graph,
 CUgraphNode* error_node,
 CUgraphExecUpdateResult* update_result) {
  return ChangeGraph<HookId::cuGraphExecUpdate>("update", Bits(executable), executable, graph,
                                                error_node, update_result);
}

VRAMSCOPE_CUDA_WRAPPER(cuGraphExecUpdate_v2)
(CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo* update_result) {
  return ChangeGraph<HookId::cuGraphExecUpdate_v2>("update", Bits(executable), executable, graph,
                                                   update_result);
}

VRAMSCOPE_CUDA_WRAPPER(cuGraphExecDestroy)(CUgraphExec graph) {
  g_launched_graphs.Erase(Bits(graph));
  return ChangeGraph<HookId::cuGraphExecDestroy>("destroy", Bits(graph), graph);
}

VRAMSCOPE_CUDA_WRAPPER(cuDeviceGraphMemTrim)(CUdevice device) {
  HookCall<HookId::cuDeviceGraphMemTrim> call;
  if (!call.watching())
    return call(device);
  const Place place = CurrentPlace();
  const FreeMemory before = ReadFreeMemory(place);
  const CUresult result = call(device);
  ReadGraphPool(device);
  FinishBracket(HookId::cuDeviceGraphMemTrim, call.times(), result, format::ImplicitKind::kGraph,
                WriteWhen::kMoved, place, before, {.name = "trim"});
  // Graphs that were launched already will take the memory anew.
  g_launched_graphs.Clear();
  return result;
}

VRAMSCOPE_CUDA_WRAPPER(cuStreamBeginCapture)(CUstream stream) {
  return BeginCapture<HookId::cuStreamBeginCapture>(false, stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuStreamBeginCapture_ptsz)(CUstream stream) {
  return BeginCapture<HookId::cuStreamBeginCapture_ptsz>(true, stream);
}

VRAMSCOPE_CUDA_WRAPPER(cuStreamBeginCapture_v2)(CUstream stream, CUstreamCaptureMode mode) {
  return BeginCapture<HookId::cuStreamBeginCapture_v2>(false, stream, mode);
}

VRAMSCOPE_CUDA_WRAPPER(cuStreamBeginCapture_v2_ptsz)(CUstream stream, CUstreamCaptureMode mode) {
  return BeginCapture<HookId::cuStreamBeginCapture_v2_ptsz>(true, stream, mode);
}

VRAMSCOPE_CUDA_WRAPPER(cuStreamBeginCaptureToGraph)
(CUstream stream,
 CUgraph graph,
 const CUgraphNode* dependencies,
 const CUgraphEdgeData* edges,
 size_t dependency_count,
 CUstreamCaptureMode mode) {
  return BeginCapture<HookId::cuStreamBeginCaptureToGraph>(false, stream, graph, dependencies,
                                                           edges, dependency_count, mode);
}

VRAMSCOPE_CUDA_WRAPPER(cuStreamBeginCaptureToGraph_ptsz)
(CUstream stream,
 CUgraph graph,
 const CUgraphNode* dependencies,
 const CUgraphEdgeData* edges,
 size_t dependency_count,
 CUstreamCaptureMode mode) {
  return BeginCapture<HookId::cuStreamBeginCaptureToGraph_ptsz>(true, stream, graph, dependencies,
                                                                edges, dependency_count, mode);
}

VRAMSCOPE_CUDA_WRAPPER(cuStreamEndCapture)(CUstream stream, CUgraph* graph) {
  return EndCapture<HookId::cuStreamEndCapture>(false, stream, graph);
}

VRAMSCOPE_CUDA_WRAPPER(cuStreamEndCapture_ptsz)(CUstream stream, CUgraph* graph) {
  return EndCapture<HookId::cuStreamEndCapture_ptsz>(true, stream, graph);
}

}  // namespace vramscope::probe::cuda
