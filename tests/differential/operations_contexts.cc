// SPDX-License-Identifier: Apache-2.0
#include <vramscope/annotate.h>

#include <algorithm>
#include <iterator>

#include "differential/operations.h"

namespace differential {
namespace {

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
  if (!context.primary) {
    p.EndContext(context.handle);
    return;
  }
  if (!p.EndPoolsBefore(context.handle))
    return;
  p.EndBlocksOf(context.handle);
  if (rng.OneIn(2)) {
    if (p.Do(p.calls.cuDevicePrimaryCtxReset_v2, context.device) == kSuccess)
      p.Forget(context.handle);
    return;
  }
  p.Do(p.calls.cuDevicePrimaryCtxRelease_v2, context.device);
  p.Do(p.calls.cuCtxSetCurrent, context.handle);
  // The last reference takes the context with it. Whatever the two calls said: one may have failed
  // because the program asked for that.
  p.calls.fail_next(fake::kFailNone, false);
  unsigned flags = 0;
  int active = 0;
  if (p.calls.cuDevicePrimaryCtxGetState.function(context.device, &flags, &active) == kSuccess &&
      active == 0)
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
    if (p.CutBlock(rng, &range.region, range.address, end, range.device, true))
      range.cut_device = range.device;
    return;
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

std::vector<Operation> ContextOperations() {
  return {
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
}

}  // namespace differential
