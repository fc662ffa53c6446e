// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "fake.h"

// Graphs with allocation nodes, streams, stream capture and events.
namespace fake {
namespace {

Stream* AsStream(CUstream handle) {
  auto* const stream = reinterpret_cast<Stream*>(handle);
  return TheDriver().streams.count(stream) != 0 ? stream : nullptr;
}

Device& DeviceOfContext(const Context* context) {
  return TheDriver().devices[static_cast<size_t>(context->device)];
}

// Of 33 streams the 2nd, 6th, 10th, ... take 2 MiB each.
CUresult CreateStream(CUstream* handle) {
  Context* const context = CurrentContext();
  if (context == nullptr)
    return kInvalidContext;
  if (context->streams++ % 4 == 1 && !ChargeContext(context, kPage))
    return kOutOfMemory;
  auto* const stream = new Stream{.context = context, .capture = nullptr};
  TheDriver().streams.insert(stream);
  *handle = reinterpret_cast<CUstream>(stream);
  return kSuccess;
}

CUresult DestroyStream(CUstream handle) {
  Stream* const stream = AsStream(handle);
  if (stream == nullptr)
    return kInvalidHandle;
  TheDriver().streams.erase(stream);
  delete stream;
  return kSuccess;
}

CUresult BeginCapture(CUstream handle) {
  Stream* const stream = AsStream(handle);
  if (stream == nullptr)
    return kCaptureUnsupported;
  if (stream->capture != nullptr)
    return kIllegalState;
  stream->capture = std::make_unique<Graph>();
  return kSuccess;
}

CUresult EndCapture(CUstream handle, CUgraph* graph) {
  Stream* const stream = AsStream(handle);
  if (stream == nullptr || stream->capture == nullptr)
    return kIllegalState;
  std::unique_ptr<Graph> captured = std::move(stream->capture);
  if (captured->invalid)
    return kCaptureInvalidated;
  *graph = reinterpret_cast<CUgraph>(captured.release());
  return kSuccess;
}

// Allocation nodes take memory out of the device's graph memory, which grows as needed.
CUresult LaunchGraph(CUgraphExec handle) {
  Context* const context = CurrentContext();
  if (context == nullptr)
    return kInvalidContext;
  auto* const exec = reinterpret_cast<GraphExec*>(handle);
  Device& device = DeviceOfContext(context);
  if (exec->held_bytes != 0)
    return kInvalidValue;
  const uint64_t wanted = RoundUp(device.graph_used + exec->graph.alloc_bytes, kPage);
  if (wanted > device.graph_reserved) {
    if (!Charge(context->device, wanted - device.graph_reserved))
      return kOutOfMemory;
    device.graph_reserved = wanted;
  }
  exec->held_bytes =
      exec->graph.alloc_bytes - std::min(exec->graph.alloc_bytes, exec->graph.free_bytes);
  device.graph_used += exec->held_bytes;
  return kSuccess;
}

}  // namespace

void EndStreamsOf(const Context* context) {
  auto& streams = TheDriver().streams;
  for (auto stream = streams.begin(); stream != streams.end();) {
    if ((*stream)->context != context) {
      ++stream;
      continue;
    }
    delete *stream;
    stream = streams.erase(stream);
  }
}

void InvalidateCaptures() {
  for (Stream* stream : TheDriver().streams) {
    if (stream->capture != nullptr)
      stream->capture->invalid = true;
  }
}

FAKE_HOOK(cuStreamCreate)(CUstream* stream, unsigned int) {
  FAKE_ENTER(cuStreamCreate);
  return CreateStream(stream);
}

FAKE_HOOK(cuStreamCreateWithPriority)(CUstream* stream, unsigned int, int) {
  FAKE_ENTER(cuStreamCreateWithPriority);
  return CreateStream(stream);
}

FAKE_HOOK(cuStreamDestroy_v2)(CUstream stream) {
  FAKE_ENTER(cuStreamDestroy_v2);
  return DestroyStream(stream);
}

FAKE_HOOK(cuStreamSynchronize)(CUstream) {
  FAKE_ENTER(cuStreamSynchronize);
  SynchronisePools();
  return kSuccess;
}

FAKE_HOOK(cuStreamSynchronize_ptsz)(CUstream) {
  FAKE_ENTER(cuStreamSynchronize_ptsz);
  SynchronisePools();
  return kSuccess;
}

FAKE_OTHER(cuEventCreate, CUevent* event, unsigned int) {
  FAKE_ENTER(cuEventCreate);
  *event = reinterpret_cast<CUevent>(new int);
  return kSuccess;
}

FAKE_OTHER(cuEventDestroy_v2, CUevent event) {
  FAKE_ENTER(cuEventDestroy_v2);
  delete reinterpret_cast<int*>(event);
  return kSuccess;
}

FAKE_HOOK(cuEventSynchronize)(CUevent) {
  FAKE_ENTER(cuEventSynchronize);
  SynchronisePools();
  return kSuccess;
}

FAKE_HOOK(cuStreamQuery)(CUstream) {
  FAKE_ENTER(cuStreamQuery);
  SynchronisePools();
  return kSuccess;
}

FAKE_HOOK(cuEventQuery)(CUevent) {
  FAKE_ENTER(cuEventQuery);
  SynchronisePools();
  return kSuccess;
}

FAKE_HOOK(cuStreamBeginCapture_v2)(CUstream stream, CUstreamCaptureMode) {
  FAKE_ENTER(cuStreamBeginCapture_v2);
  return BeginCapture(stream);
}

FAKE_HOOK(cuStreamEndCapture)(CUstream stream, CUgraph* graph) {
  FAKE_ENTER(cuStreamEndCapture);
  return EndCapture(stream, graph);
}

FAKE_CALL(cuStreamIsCapturing)(CUstream stream, CUstreamCaptureStatus* status) {
  FAKE_ENTER(cuStreamIsCapturing);
  const Stream* const known = AsStream(stream);
  *status = known != nullptr && known->capture != nullptr ? kCaptureStatusActive : 0;
  return kSuccess;
}

FAKE_HOOK(cuGraphInstantiateWithFlags)(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  FAKE_ENTER(cuGraphInstantiateWithFlags);
  *exec = reinterpret_cast<CUgraphExec>(
      new GraphExec{.graph = *reinterpret_cast<Graph*>(graph), .held_bytes = 0});
  return kSuccess;
}

FAKE_OTHER(cuGraphDestroy, CUgraph graph) {
  FAKE_ENTER(cuGraphDestroy);
  delete reinterpret_cast<Graph*>(graph);
  return kSuccess;
}

FAKE_HOOK(cuGraphExecDestroy)(CUgraphExec handle) {
  FAKE_ENTER(cuGraphExecDestroy);
  auto* const exec = reinterpret_cast<GraphExec*>(handle);
  if (const Context* context = CurrentContext())
    DeviceOfContext(context).graph_used -= exec->held_bytes;
  delete exec;
  return kSuccess;
}

FAKE_HOOK(cuGraphLaunch)(CUgraphExec graph, CUstream) {
  FAKE_ENTER(cuGraphLaunch);
  return LaunchGraph(graph);
}

FAKE_HOOK(cuGraphLaunch_ptsz)(CUgraphExec graph, CUstream) {
  FAKE_ENTER(cuGraphLaunch_ptsz);
  return LaunchGraph(graph);
}

FAKE_HOOK(cuDeviceGraphMemTrim)(CUdevice ordinal) {
  FAKE_ENTER(cuDeviceGraphMemTrim);
  if (!IsDevice(ordinal))
    return kInvalidDevice;
  Device& device = TheDriver().devices[static_cast<size_t>(ordinal)];
  const uint64_t kept = RoundUp(device.graph_used, kPage);
  Refund(ordinal, device.graph_reserved - kept);
  device.graph_reserved = kept;
  return kSuccess;
}

FAKE_CALL(cuDeviceGetGraphMemAttribute)
(CUdevice ordinal, CUgraphMem_attribute attribute, void* value) {
  FAKE_ENTER(cuDeviceGetGraphMemAttribute);
  const Device& device = TheDriver().devices[static_cast<size_t>(ordinal)];
  *static_cast<uint64_t*>(value) =
      attribute == kGraphReservedCurrent ? device.graph_reserved : device.graph_used;
  return kSuccess;
}

}  // namespace fake
