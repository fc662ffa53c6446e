// SPDX-License-Identifier: Apache-2.0
#include <vramscope/annotate.h>

#include "differential/operations.h"

namespace differential {
namespace {

// ---- pools

CUstream SomeStream(Program& p, Hand& hand, Rng& rng) {
  const CUcontext context = p.Current();
  if (hand.streams.empty() || rng.OneIn(3))
    return nullptr;
  const Stream& stream = rng.Pick(hand.streams);
  return stream.context == context ? stream.handle : nullptr;
}

void MakePool(Program& p, Hand&, Rng& rng) {
  CUmemPoolProps properties{};
  properties.allocType = 1;
  const auto device = static_cast<int>(rng.Below(static_cast<uint64_t>(p.devices)));
  properties.location = {kLocationDevice, device};
  CUmemoryPool pool = nullptr;
  if (p.Do(p.calls.cuMemPoolCreate, &pool, &properties) != kSuccess)
    return;
  p.pools.push_back({pool, device});
  vramscope_annotate_name_pool(pool, "a pool of the program's");
}

void EndPool(Program& p, Hand&, Rng& rng) {
  if (p.pools.empty())
    return;
  const Pool pool = Take(p.pools, rng);
  if (p.Do(p.calls.cuMemPoolDestroy, pool.handle) != kSuccess)
    p.pools.push_back(pool);
}

void SetThreshold(Program& p, Hand&, Rng& rng) {
  CUmemoryPool pool = nullptr;
  const auto device = static_cast<int>(rng.Below(static_cast<uint64_t>(p.devices)));
  if (!p.pools.empty() && rng.OneIn(2))
    pool = rng.Pick(p.pools).handle;
  else if (p.Do(p.calls.cuDeviceGetDefaultMemPool, &pool, device) != kSuccess)
    return;
  constexpr CUmemPool_attribute kReleaseThreshold = 4;
  uint64_t threshold = rng.OneIn(3) ? 0 : rng.OneIn(3) ? UINT64_MAX : rng.Below(8) * 32 * kMiB;
  p.Do(p.calls.cuMemPoolSetAttribute, pool, kReleaseThreshold, static_cast<void*>(&threshold));
}

void SetPool(Program& p, Hand&, Rng& rng) {
  CUmemoryPool pool = nullptr;
  const auto device = static_cast<int>(rng.Below(static_cast<uint64_t>(p.devices)));
  if (!p.pools.empty() && rng.OneIn(2))
    pool = rng.Pick(p.pools).handle;
  else if (p.Do(p.calls.cuDeviceGetDefaultMemPool, &pool, device) != kSuccess)
    return;
  p.Do(p.calls.cuDeviceSetMemPool, device, pool);
}

void TrimPool(Program& p, Hand&, Rng& rng) {
  if (!p.pools.empty())
    p.Do(p.calls.cuMemPoolTrimTo, rng.Pick(p.pools).handle, size_t{rng.Below(4) * 32 * kMiB});
}

void AllocAsync(Program& p, Hand& hand, Rng& rng) {
  const CUstream stream = SomeStream(p, hand, rng);
  const uint64_t size = rng.Size();
  CUdeviceptr address = 0;
  CUresult result = kSuccess;
  if (!p.pools.empty() && rng.OneIn(2))
    result =
        p.Do(p.calls.cuMemAllocFromPoolAsync, &address, size, rng.Pick(p.pools).handle, stream);
  else if (rng.OneIn(4))
    result = p.Do(p.calls.cuMemAllocAsync_ptsz, &address, size, stream);
  else
    result = p.Do(p.calls.cuMemAllocAsync, &address, size, stream);
  if (result == kSuccess)
    hand.pool_memory.push_back({address});
}

void FreeAsync(Program& p, Hand& hand, Rng& rng) {
  if (hand.pool_memory.empty())
    return;
  const PoolMemory memory = Take(hand.pool_memory, rng);
  const CUstream stream = SomeStream(p, hand, rng);
  const CUresult result = rng.OneIn(5)   ? p.Do(p.calls.cuMemFree_v2, memory.address)
                          : rng.OneIn(4) ? p.Do(p.calls.cuMemFreeAsync_ptsz, memory.address, stream)
                                         : p.Do(p.calls.cuMemFreeAsync, memory.address, stream);
  if (result == kSuccess)
    hand.gone.push_back(memory.address);
  else
    hand.pool_memory.push_back(memory);
}

void Synchronise(Program& p, Hand& hand, Rng& rng) {
  switch (rng.Below(3)) {
    case 0:
      p.Do(p.calls.cuCtxSynchronize);
      return;
    case 1:
      p.Do(p.calls.cuStreamSynchronize, SomeStream(p, hand, rng));
      return;
    default: {
      CUevent event = nullptr;
      if (p.Do(p.calls.cuEventCreate, &event, 0u) != kSuccess)
        return;
      p.Do(p.calls.cuEventSynchronize, event);
      p.Do(p.calls.cuEventDestroy_v2, event);
    }
  }
}

// ---- streams and graphs

void MakeStream(Program& p, Hand& hand, Rng& rng) {
  const CUcontext context = p.Current();
  CUstream stream = nullptr;
  const CUresult result = rng.OneIn(2) ? p.Do(p.calls.cuStreamCreate, &stream, 1u)
                                       : p.Do(p.calls.cuStreamCreateWithPriority, &stream, 1u, 0);
  if (result == kSuccess)
    hand.streams.push_back({stream, context});
}

void EndStream(Program& p, Hand& hand, Rng& rng) {
  if (hand.streams.empty())
    return;
  const Stream stream = Take(hand.streams, rng);
  if (p.Do(p.calls.cuStreamDestroy_v2, stream.handle) != kSuccess)
    hand.streams.push_back(stream);
}

// Operations during the capture of a stream, when nothing can be read.
void WhileCapturing(Program& p, Hand& hand, Rng& rng) {
  switch (rng.Below(6)) {
    case 0:
      return AllocLinear(p, hand, rng);
    case 1:
      return FreeLinear(p, hand, rng);
    case 2:
      return MakeStream(p, hand, rng);
    case 3:
      return AllocAsync(p, hand, rng);
    case 4:
      return FreeAsync(p, hand, rng);
    default:
      return MakePhysical(p, hand, rng);
  }
}

void Capture(Program& p, Hand& hand, Rng& rng) {
  const CUcontext context = p.Current();
  CUstream stream = nullptr;
  if (p.Do(p.calls.cuStreamCreate, &stream, 1u) != kSuccess)
    return;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  if (p.Do(p.calls.cuStreamBeginCapture_v2, stream, 2) == kSuccess) {
    p.is_capturing = true;
    CUdeviceptr nodes[3] = {};
    const uint64_t count = rng.Below(4);
    for (uint64_t i = 0; i < count; ++i) {
      WhileCapturing(p, hand, rng);
      if (p.Do(p.calls.cuMemAllocAsync, &nodes[i], 1 + rng.Below(64 * kMiB), stream) != kSuccess)
        nodes[i] = 0;
    }
    // Memory that its graph does not free forbids a second launch.
    for (const CUdeviceptr node : nodes) {
      if (node != 0)
        p.Do(p.calls.cuMemFreeAsync, node, stream);
    }
    const bool is_abandoned = rng.OneIn(8);
    const bool is_over = !is_abandoned && rng.OneIn(8) && p.EndContext(context);
    p.is_capturing = false;
    if (is_abandoned)
      p.Do(p.calls.cuStreamDestroy_v2, stream);
    if (is_abandoned || is_over)
      return;
    if (p.Do(p.calls.cuStreamEndCapture, stream, &graph) == kSuccess) {
      if (p.Do(p.calls.cuGraphInstantiateWithFlags, &exec, graph, 0ull) == kSuccess)
        hand.graphs.push_back({exec, context});
      p.Do(p.calls.cuGraphDestroy, graph);
    }
  }
  p.Do(p.calls.cuStreamDestroy_v2, stream);
}

void LaunchGraph(Program& p, Hand& hand, Rng& rng) {
  if (hand.graphs.empty())
    return;
  const Graph& graph = rng.Pick(hand.graphs);
  if (graph.context == p.Current())
    p.Do(p.calls.cuGraphLaunch, graph.handle, nullptr);
}

void EndGraph(Program& p, Hand& hand, Rng& rng) {
  if (hand.graphs.empty())
    return;
  const Graph graph = Take(hand.graphs, rng);
  if (p.Do(p.calls.cuGraphExecDestroy, graph.handle) != kSuccess)
    hand.graphs.push_back(graph);
}

void TrimGraphs(Program& p, Hand&, Rng& rng) {
  p.Do(p.calls.cuDeviceGraphMemTrim, static_cast<int>(rng.Below(static_cast<uint64_t>(p.devices))));
}

}  // namespace

std::vector<Operation> StreamOperations() {
  return {
      {"make pool", 5, false, MakePool},
      {"end pool", 4, false, EndPool},
      {"set threshold", 6, false, SetThreshold},
      {"set pool", 3, false, SetPool},
      {"trim pool", 6, true, TrimPool},
      {"alloc async", 40, true, AllocAsync},
      {"free async", 36, true, FreeAsync},
      {"synchronise", 20, true, Synchronise},
      {"make stream", 8, true, MakeStream},
      {"end stream", 5, true, EndStream},
      {"capture", 8, false, Capture},
      {"launch graph", 14, true, LaunchGraph},
      {"end graph", 5, true, EndGraph},
      {"trim graphs", 5, true, TrimGraphs},
  };
}

}  // namespace differential
