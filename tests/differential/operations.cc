// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <vramscope/annotate.h>

#include <algorithm>
#include <iterator>

#include "differential/program.h"

// What random programs do. A new entry point is a line of driver_calls.h and one of the table at
// the end.
namespace differential {
namespace {

template <class T>
T Take(std::vector<T>& from, Rng& rng) {
  const size_t index = rng.Below(from.size());
  T taken = std::move(from[index]);
  from.erase(from.begin() + static_cast<ptrdiff_t>(index));
  return taken;
}

const void* At(uint64_t address) {
  return reinterpret_cast<const void*>(address);
}

// An address that is no allocation's: freed before, inside of one, or never given out.
uint64_t WrongAddress(Program& p, Hand& hand, Rng& rng) {
  if (!hand.gone.empty() && rng.OneIn(2)) {
    const uint64_t address = rng.Pick(hand.gone);
    if (!p.MayBeAllocated(address))
      return address;
  }
  if (!hand.linear.empty() && rng.OneIn(2))
    return rng.Pick(hand.linear).address + 8;
  return rng.OneIn(3) ? 0 : 0x7eee00000000 + rng.Below(1 << 20) * 512;
}

// ---- linear memory

void AllocLinear(Program& p, Hand& hand, Rng& rng) {
  const CUcontext context = p.Current();
  const uint64_t size = rng.Size();
  CUdeviceptr address = 0;
  if (p.Do(p.calls.cuMemAlloc_v2, &address, size) == kSuccess)
    hand.linear.push_back({address, size, context, p.DeviceOf(context), false, false, {}});
}

void AllocOld(Program& p, Hand& hand, Rng& rng) {
  const CUcontext context = p.Current();
  const auto size = static_cast<unsigned>(rng.Size());
  CUdeviceptr_v1 address = 0;
  if (p.Do(p.calls.cuMemAlloc, &address, size) == kSuccess)
    hand.linear.push_back({address, size, context, p.DeviceOf(context), true, false, {}});
}

void AllocPitch(Program& p, Hand& hand, Rng& rng) {
  const CUcontext context = p.Current();
  const uint64_t width = 1 + rng.Below(5000), height = rng.Below(rng.OneIn(4) ? 10 : 3000);
  CUdeviceptr address = 0;
  size_t pitch = 0;
  if (p.Do(p.calls.cuMemAllocPitch_v2, &address, &pitch, width, height, 4u) == kSuccess)
    hand.linear.push_back({address, pitch * height, context, p.DeviceOf(context), false, true, {}});
}

void FreeLinear(Program& p, Hand& hand, Rng& rng) {
  if (hand.linear.empty())
    return;
  Linear memory = Take(hand.linear, rng);
  p.EndBlocks(&memory.region, memory.device);
  const CUresult result = memory.old_version
                              ? p.Do(p.calls.cuMemFree, static_cast<CUdeviceptr_v1>(memory.address))
                          : rng.OneIn(8) ? p.Do(p.calls.cuMemFreeAsync, memory.address, nullptr)
                                         : p.Do(p.calls.cuMemFree_v2, memory.address);
  if (result == kSuccess)
    hand.gone.push_back(memory.address);
  else
    hand.linear.push_back(std::move(memory));
}

void FreeWrong(Program& p, Hand& hand, Rng& rng) {
  const uint64_t address = WrongAddress(p, hand, rng);
  switch (rng.Below(7)) {
    case 0:
      p.Do(p.calls.cuMemFreeAsync, address, nullptr);
      return;
    case 1:
      p.Do(p.calls.cuMemFreeHost, const_cast<void*>(At(address)));
      return;
    case 2:
      p.Do(p.calls.cuMemHostUnregister, const_cast<void*>(At(address)));
      return;
    case 3:
      p.Do(p.calls.cuArrayDestroy, reinterpret_cast<CUarray>(address));
      return;
    case 4:
      p.Do(p.calls.cuMemRelease, address);
      return;
    case 5:
      p.Do(p.calls.cuMemUnmap, address, size_t{kPage});
      return;
    default:
      p.Do(p.calls.cuMemFree_v2, address);
  }
}

// ---- host and managed memory

void AllocHost(Program& p, Hand& hand, Rng& rng) {
  using Kind = HostMemory::Kind;
  const CUcontext context = p.Current();
  const uint64_t size = rng.Size();
  void* memory = nullptr;
  CUdeviceptr address = 0;
  switch (rng.Below(4)) {
    case 0:
      if (p.Do(p.calls.cuMemAllocHost_v2, &memory, size) == kSuccess)
        hand.host.push_back({Kind::kPinned, reinterpret_cast<uintptr_t>(memory), context});
      return;
    case 1:
      if (p.Do(p.calls.cuMemHostAlloc, &memory, size, 0u) == kSuccess)
        hand.host.push_back({Kind::kPinned, reinterpret_cast<uintptr_t>(memory), context});
      return;
    case 2:
      if (p.Do(p.calls.cuMemAllocManaged, &address, size, 1u) == kSuccess)
        hand.host.push_back({Kind::kManaged, address, context});
      return;
    default: {
      // Never touched. Addresses may be registered a second time, which is refused.
      static char* const base = static_cast<char*>(
          mmap(nullptr, 64 * kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      char* const at = base + rng.Below(64) * 4096;
      if (p.Do(p.calls.cuMemHostRegister_v2, at, rng.Below(16) * 4096, 0u) == kSuccess)
        hand.host.push_back({Kind::kRegistered, reinterpret_cast<uintptr_t>(at), context});
    }
  }
}

void FreeHost(Program& p, Hand& hand, Rng& rng) {
  if (hand.host.empty())
    return;
  const HostMemory memory = Take(hand.host, rng);
  auto* const pointer = const_cast<void*>(At(memory.address));
  const CUresult result =
      memory.kind == HostMemory::Kind::kPinned       ? p.Do(p.calls.cuMemFreeHost, pointer)
      : memory.kind == HostMemory::Kind::kRegistered ? p.Do(p.calls.cuMemHostUnregister, pointer)
                                                     : p.Do(p.calls.cuMemFree_v2, memory.address);
  if (result != kSuccess)
    hand.host.push_back(memory);
}

// ---- arrays

void MakeArray(Program& p, Hand& hand, Rng& rng) {
  const CUcontext context = p.Current();
  CUarray array = nullptr;
  CUresult result = kSuccess;
  if (rng.OneIn(2)) {
    const CUDA_ARRAY_DESCRIPTOR shape{
        .Width = 1 + rng.Below(4000), .Height = rng.Below(2000), .Format = 0x20, .NumChannels = 1};
    result = p.Do(p.calls.cuArrayCreate_v2, &array, &shape);
  } else {
    const CUDA_ARRAY3D_DESCRIPTOR shape{.Width = 1 + rng.Below(400),
                                        .Height = rng.Below(300),
                                        .Depth = rng.Below(20),
                                        .Format = 0x10,
                                        .NumChannels = 1u << rng.Below(3),
                                        .Flags = 0};
    result = p.Do(p.calls.cuArray3DCreate_v2, &array, &shape);
  }
  if (result == kSuccess)
    hand.arrays.push_back({array, context});
}

void EndArray(Program& p, Hand& hand, Rng& rng) {
  if (hand.arrays.empty())
    return;
  const Array array = Take(hand.arrays, rng);
  if (p.Do(p.calls.cuArrayDestroy, array.handle) != kSuccess)
    hand.arrays.push_back(array);
}

// ---- physical memory and addresses apart

void MakePhysical(Program& p, Hand& hand, Rng& rng) {
  const auto device = static_cast<int>(rng.Below(static_cast<uint64_t>(p.devices)));
  CUmemAllocationProp properties{};
  properties.type = 1;
  properties.location = {kLocationDevice, rng.OneIn(30) ? 63 : device};
  const uint64_t size = rng.OneIn(20) ? rng.Size() : (1 + rng.Below(16)) * kPage;
  CUmemGenericAllocationHandle handle = 0;
  if (p.Do(p.calls.cuMemCreate, &handle, size, &properties, 0ull) == kSuccess)
    hand.physical.push_back({handle, size, device});
}

void Release(Program& p, Hand& hand, Rng& rng) {
  if (hand.physical.empty())
    return;
  const Physical physical = Take(hand.physical, rng);
  if (p.Do(p.calls.cuMemRelease, physical.handle) != kSuccess)
    hand.physical.push_back(physical);
}

void Reserve(Program& p, Hand& hand, Rng& rng) {
  const uint64_t size = (1 + rng.Below(64)) * kPage;
  CUdeviceptr address = 0;
  if (p.Do(p.calls.cuMemAddressReserve, &address, size, size_t{0}, CUdeviceptr{0}, 0ull) ==
      kSuccess)
    hand.reservations.push_back({address, size, -1, {}, false, {}});
}

uint64_t EndOfMappings(const Reservation& range) {
  return range.mappings.empty() ? range.address
                                : range.mappings.rbegin()->first + range.mappings.rbegin()->second;
}

void Map(Program& p, Hand& hand, Rng& rng) {
  if (hand.physical.empty() || hand.reservations.empty())
    return;
  const Physical& physical = rng.Pick(hand.physical);
  Reservation& range = rng.Pick(hand.reservations);
  if (!range.mappings.empty() && range.device != physical.device)
    return;
  // Behind the others, at the begin again, or where something may be mapped already.
  const uint64_t at = rng.OneIn(4) ? range.address : EndOfMappings(range);
  const auto next = range.mappings.lower_bound(at);
  if (at + physical.size > range.address + range.size ||
      (next != range.mappings.end() && next->first != at && next->first < at + physical.size))
    return;
  if (p.Do(p.calls.cuMemMap, at, physical.size, size_t{0}, physical.handle, 0ull) != kSuccess)
    return;
  range.mappings[at] = physical.size;
  range.has_alias = p.NoteMapped(physical.handle) || range.has_alias;
  range.device = physical.device;
}

void Unmap(Program& p, Hand& hand, Rng& rng) {
  if (hand.reservations.empty())
    return;
  Reservation& range = rng.Pick(hand.reservations);
  if (range.mappings.empty())
    return;
  p.EndBlocks(&range.region, range.device);
  if (rng.OneIn(3)) {  // several at once, without a hole
    const uint64_t begin = range.mappings.begin()->first;
    auto end = range.mappings.begin();
    uint64_t size = 0;
    for (; end != range.mappings.end() && end->first == begin + size; ++end)
      size += end->second;
    if (p.Do(p.calls.cuMemUnmap, begin, size) == kSuccess)
      range.mappings.erase(range.mappings.begin(), end);
    return;
  }
  auto mapping = range.mappings.begin();
  std::advance(mapping, rng.Below(range.mappings.size()));
  if (p.Do(p.calls.cuMemUnmap, mapping->first, mapping->second) == kSuccess)
    range.mappings.erase(mapping);
}

void Retain(Program& p, Hand& hand, Rng& rng) {
  if (hand.reservations.empty())
    return;
  Reservation& range = rng.Pick(hand.reservations);
  if (range.mappings.empty())
    return;
  auto mapping = range.mappings.begin();
  std::advance(mapping, rng.Below(range.mappings.size()));
  CUmemGenericAllocationHandle handle = 0;
  if (p.Do(p.calls.cuMemRetainAllocationHandle, &handle, const_cast<void*>(At(mapping->first))) ==
      kSuccess)
    hand.physical.push_back({handle, mapping->second, range.device});
}

void Unreserve(Program& p, Hand& hand, Rng& rng) {
  if (hand.reservations.empty())
    return;
  Reservation range = Take(hand.reservations, rng);
  if (!range.mappings.empty() ||
      p.Do(p.calls.cuMemAddressFree, range.address, range.size) != kSuccess)
    hand.reservations.push_back(std::move(range));
}

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

// What goes on while a stream is captured: nothing can be read then.
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

// ---- code

void LoadModule(Program& p, Hand& hand, Rng& rng) {
  Module module{nullptr, nullptr, p.Current(), {}, {}};
  const std::string image = "FAKE code=" + std::to_string(rng.Below(4 * kPage)) +
                            " global=" + std::to_string(rng.Below(3 * kPage)) +
                            " kernel=a:0:0 kernel=b:" + std::to_string(rng.Below(3000)) +
                            ":0 kernel=c:0:" + std::to_string(rng.Below(2 * kPage));
  if (rng.OneIn(2)) {
    if (p.Do(p.calls.cuModuleLoadData, &module.module, image.c_str()) != kSuccess)
      return;
    for (const char* name : {"a", "b", "c", "missing"}) {
      CUfunction function = nullptr;
      if (p.Do(p.calls.cuModuleGetFunction, &function, module.module, name) == kSuccess)
        module.functions.push_back(function);
    }
  } else {
    if (p.Do(p.calls.cuLibraryLoadData, &module.library, image.c_str(), nullptr, nullptr, 0u,
             nullptr, nullptr, 0u) != kSuccess)
      return;
    for (const char* name : {"a", "b", "c"}) {
      CUkernel kernel = nullptr;
      if (p.Do(p.calls.cuLibraryGetKernel, &kernel, module.library, name) == kSuccess)
        module.kernels.push_back(kernel);
    }
  }
  hand.modules.push_back(std::move(module));
}

void Launch(Program& p, Hand& hand, Rng& rng) {
  if (hand.modules.empty())
    return;
  Module& module = rng.Pick(hand.modules);
  CUfunction function = nullptr;
  if (!module.functions.empty()) {
    function = rng.Pick(module.functions);
  } else if (module.kernels.empty() ||
             p.Do(p.calls.cuKernelGetFunction, &function, rng.Pick(module.kernels)) != kSuccess) {
    return;
  }
  p.Do(p.calls.cuLaunchKernel, function, 1u, 1u, 1u, 1u, 1u, 1u, 0u, nullptr, nullptr, nullptr);
}

void UnloadModule(Program& p, Hand& hand, Rng& rng) {
  if (hand.modules.empty())
    return;
  Module module = Take(hand.modules, rng);
  const CUresult result = module.module != nullptr ? p.Do(p.calls.cuModuleUnload, module.module)
                                                   : p.Do(p.calls.cuLibraryUnload, module.library);
  if (result != kSuccess)
    hand.modules.push_back(std::move(module));
}

void SetLimit(Program& p, Hand&, Rng& rng) {
  const auto limit = static_cast<CUlimit>(rng.Below(4));
  const uint64_t value = limit == 0 ? 1024 * (1 + rng.Below(4)) : rng.Below(64) * kMiB;
  p.Do(p.calls.cuCtxSetLimit, rng.OneIn(20) ? 77 : limit, size_t{value});
}

// ---- contexts

void MakeContext(Program& p, Hand&, Rng& rng) {
  if (p.contexts.size() >= 4)
    return;
  const auto device = static_cast<int>(rng.Below(static_cast<uint64_t>(p.devices)));
  CUcontext context = nullptr;
  const CUresult result = rng.OneIn(2)
                              ? p.Do(p.calls.cuCtxCreate_v2, &context, 0u, device)
                              : p.Do(p.calls.cuCtxCreate_v4, &context, nullptr, 0u, device);
  if (result == kSuccess)
    p.contexts.push_back({context, device, false});
}

void RetainPrimary(Program& p, Hand&, Rng& rng) {
  const auto device = static_cast<int>(rng.Below(static_cast<uint64_t>(p.devices)));
  CUcontext context = nullptr;
  if (p.Do(p.calls.cuDevicePrimaryCtxRetain, &context, device) != kSuccess)
    return;
  const bool known = std::any_of(p.contexts.begin(), p.contexts.end(),
                                 [&](const Context& one) { return one.handle == context; });
  if (!known)
    p.contexts.push_back({context, device, true});
}

// With whatever it holds.
void EndContext(Program& p, Hand&, Rng& rng) {
  if (p.contexts.empty())
    return;
  const Context context = rng.Pick(p.contexts);
  // What becomes of a device's pools when its primary context ends is nowhere said.
  if (context.primary && p.HasPoolMemory())
    return;
  p.EndBlocksOf(context.handle);
  if (!context.primary) {
    if (p.Do(p.calls.cuCtxDestroy_v2, context.handle) == kSuccess)
      p.Forget(context.handle);
    return;
  }
  if (rng.OneIn(2)) {
    if (p.Do(p.calls.cuDevicePrimaryCtxReset_v2, context.device) == kSuccess)
      p.Forget(context.handle);
    return;
  }
  p.Do(p.calls.cuDevicePrimaryCtxRelease_v2, context.device);
  // The last reference takes the context with it: then it cannot be made current any more.
  if (p.Do(p.calls.cuCtxSetCurrent, context.handle) != kSuccess)
    p.Forget(context.handle);
}

void ChangeContext(Program& p, Hand&, Rng& rng) {
  if (p.contexts.empty())
    return;
  const CUcontext context = rng.OneIn(10) ? nullptr : rng.Pick(p.contexts).handle;
  switch (rng.Below(4)) {
    case 0:
      p.Do(p.calls.cuCtxPushCurrent_v2, context);
      return;
    case 1: {
      CUcontext popped = nullptr;
      p.Do(p.calls.cuCtxPopCurrent_v2, &popped);
      return;
    }
    default:
      p.Do(p.calls.cuCtxSetCurrent, context);
  }
}

// ---- blocks and names

void CutBlock(Program& p, Hand& hand, Rng& rng) {
  if (rng.OneIn(4) && !hand.reservations.empty()) {
    Reservation& range = rng.Pick(hand.reservations);
    if (range.has_alias)
      return;
    uint64_t end = range.address;
    for (const auto& [address, size] : range.mappings) {
      if (address != end)
        break;
      end += size;
    }
    return p.CutBlock(rng, &range.region, range.address, end, range.device);
  }
  if (hand.linear.empty())
    return;
  Linear& memory = rng.Pick(hand.linear);
  if (memory.size > kMiB && !memory.pitched)
    p.CutBlock(rng, &memory.region, memory.address, memory.address + memory.size, memory.device);
}

void EndBlock(Program& p, Hand& hand, Rng& rng) {
  const auto end_in = [&](Region* region, int device) {
    if (region->blocks.empty())
      return false;
    auto block = region->blocks.begin();
    std::advance(block, rng.Below(region->blocks.size()));
    p.EndBlock(region, block->first, device);
    return true;
  };
  for (Linear& memory : hand.linear) {
    if (rng.OneIn(2) && end_in(&memory.region, memory.device))
      return;
  }
  for (Reservation& range : hand.reservations) {
    if (end_in(&range.region, range.device))
      return;
  }
}

void Mark(Program& p, Hand& hand, Rng& rng) {
  if (rng.OneIn(2) || hand.linear.empty())
    vramscope_annotate_mark("a mark of the program's");
  else
    vramscope_annotate_tag(At(rng.Pick(hand.linear).address), "a name", 0);
  p.After("annotate", kSuccess);
}

}  // namespace

const std::vector<Operation>& Operations() {
  static const std::vector<Operation> operations = {
      {"alloc linear", 60, true, AllocLinear},
      {"alloc old version", 6, true, AllocOld},
      {"alloc pitch", 10, true, AllocPitch},
      {"free linear", 60, true, FreeLinear},
      {"free wrong", 12, true, FreeWrong},
      {"alloc host", 15, true, AllocHost},
      {"free host", 12, true, FreeHost},
      {"make array", 8, false, MakeArray},
      {"end array", 8, false, EndArray},
      {"make physical", 16, true, MakePhysical},
      {"release", 14, true, Release},
      {"reserve", 8, true, Reserve},
      {"map", 24, true, Map},
      {"unmap", 14, true, Unmap},
      {"retain", 6, true, Retain},
      {"unreserve", 5, true, Unreserve},
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
      {"load module", 6, true, LoadModule},
      {"launch", 16, true, Launch},
      {"unload module", 3, true, UnloadModule},
      {"set limit", 6, true, SetLimit},
      {"make context", 4, false, MakeContext},
      {"retain primary", 5, false, RetainPrimary},
      {"end context", 4, false, EndContext},
      {"change context", 10, true, ChangeContext},
      {"cut block", 40, true, CutBlock},
      {"end block", 36, true, EndBlock},
      {"mark", 6, true, Mark},
  };
  return operations;
}

}  // namespace differential
