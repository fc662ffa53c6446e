// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "fake.h"

namespace fake {
namespace {

constexpr int kMaxLimit = 6;

Context* AsContext(CUcontext handle) {
  auto* const context = reinterpret_cast<Context*>(handle);
  return TheDriver().contexts.count(context) != 0 ? context : nullptr;
}

CUcontext Handle(Context* context) {
  return reinterpret_cast<CUcontext>(context);
}

CUresult BeginContext(CUdevice device, bool primary, Context** context) {
  Driver& driver = TheDriver();
  Device& owner = driver.devices[static_cast<size_t>(device)];
  const bool is_kept = primary && owner.keeps_primary;
  if (!is_kept && !Charge(device, kContextBytes))
    return kOutOfMemory;
  if (FailsLate()) {
    if (!is_kept)
      Refund(device, kContextBytes);
    return kOutOfMemory;
  }
  *context = new Context{.device = device, .primary = primary, .references = 1};
  if (is_kept) {
    owner.keeps_primary = false;
    (*context)->local_bytes = owner.kept_local_bytes;
    (*context)->charged = owner.kept_local_bytes - kFreeLocalBytes;
  } else {
    __atomic_fetch_add(&owner.row->device_bytes, kContextDeviceBytes, __ATOMIC_RELAXED);
    __atomic_store_n(&owner.row->has_context, 1u, __ATOMIC_RELAXED);
  }
  driver.contexts.insert(*context);
  driver.released.erase(*context);  // another one at its address
  return kSuccess;
}

CUresult CreateContext(CUcontext* handle, CUdevice device) {
  if (!IsDevice(device))
    return kInvalidDevice;
  Context* context = nullptr;
  const CUresult result = BeginContext(device, false, &context);
  if (result != kSuccess)
    return result;
  ContextStack().push_back(context);
  *handle = Handle(context);
  return kSuccess;
}

CUresult DestroyContext(CUcontext handle) {
  Context* const context = AsContext(handle);
  if (context == nullptr || context->primary)
    return kInvalidContext;
  auto& stack = ContextStack();
  if (!stack.empty() && stack.back() == context)
    stack.pop_back();
  EndContext(context);
  return kSuccess;
}

CUresult ReleasePrimary(CUdevice device) {
  if (!IsDevice(device))
    return kInvalidDevice;
  Device& owner = TheDriver().devices[static_cast<size_t>(device)];
  if (owner.primary == nullptr)
    return kInvalidContext;
  if (--owner.primary->references == 0) {
    // A device has one: of those before it nothing is left.
    std::erase_if(TheDriver().released, [&](const auto& old) { return old.second == device; });
    TheDriver().released[owner.primary] = device;
    EndContext(owner.primary);
  }
  return kSuccess;
}

CUresult ResetPrimary(CUdevice device) {
  if (!IsDevice(device))
    return kInvalidDevice;
  Device& owner = TheDriver().devices[static_cast<size_t>(device)];
  if (owner.primary != nullptr) {
    std::erase_if(TheDriver().released, [&](const auto& old) { return old.second == device; });
    EndContext(owner.primary);
  }
  return kSuccess;
}

CUresult SetCurrent(CUcontext handle) {
  auto& stack = ContextStack();
  if (!stack.empty())
    stack.pop_back();
  if (handle == nullptr)
    return kSuccess;
  Context* const context = AsContext(handle);
  if (context == nullptr)
    return kInvalidContext;
  stack.push_back(context);
  return kSuccess;
}

CUresult PushCurrent(CUcontext handle) {
  Context* const context = AsContext(handle);
  if (context == nullptr)
    return kInvalidContext;
  ContextStack().push_back(context);
  return kSuccess;
}

}  // namespace

bool IsDevice(CUdevice device) {
  return device >= 0 && static_cast<size_t>(device) < TheDriver().devices.size();
}

void EndContext(Context* context) {
  Driver& driver = TheDriver();
  EndHostBlocksOf(context);
  EndModulesOf(context);
  EndStreamsOf(context);
  Device& owner = driver.devices[static_cast<size_t>(context->device)];
  for (auto block = driver.blocks.begin(); block != driver.blocks.end();) {
    if (block->second.context != context) {
      ++block;
      continue;
    }
    LeaveShared(block->second.shared, block->second.kind != BlockKind::kImported);
    Refund(context->device, block->second.charged);
    if (block->second.slab == 0)
      driver.SpaceOf(block->first).Give(block->first, block->second.charged);
    block = driver.blocks.erase(block);
  }
  for (const auto& slab : context->slabs) {
    Refund(context->device, kPage);
    driver.SpaceOf(slab.first).Give(slab.first, kPage);
  }
  if (context->primary) {
    Refund(context->device, context->charged - (context->local_bytes - kFreeLocalBytes));
    owner.keeps_primary = true;
    owner.kept_local_bytes = context->local_bytes;
    owner.primary = nullptr;
  } else {
    Refund(context->device, context->charged + kContextBytes);
    __atomic_fetch_sub(&owner.row->device_bytes, kContextDeviceBytes, __ATOMIC_RELAXED);
  }
  driver.contexts.erase(context);
  delete context;
}

FAKE_HOOK(cuCtxCreate)(CUcontext* context, unsigned int, CUdevice device) {
  FAKE_ENTER(cuCtxCreate);
  return CreateContext(context, device);
}

FAKE_HOOK(cuCtxCreate_v2)(CUcontext* context, unsigned int, CUdevice device) {
  FAKE_ENTER(cuCtxCreate_v2);
  return CreateContext(context, device);
}

FAKE_HOOK(cuCtxCreate_v3)
(CUcontext* context, CUexecAffinityParam*, int, unsigned int, CUdevice device) {
  FAKE_ENTER(cuCtxCreate_v3);
  return CreateContext(context, device);
}

FAKE_HOOK(cuCtxCreate_v4)(CUcontext* context, CUctxCreateParams*, unsigned int, CUdevice device) {
  FAKE_ENTER(cuCtxCreate_v4);
  return CreateContext(context, device);
}

FAKE_HOOK(cuCtxDestroy)(CUcontext context) {
  FAKE_ENTER(cuCtxDestroy);
  return DestroyContext(context);
}

FAKE_HOOK(cuCtxDestroy_v2)(CUcontext context) {
  FAKE_ENTER(cuCtxDestroy_v2);
  return DestroyContext(context);
}

FAKE_HOOK(cuDevicePrimaryCtxRetain)(CUcontext* handle, CUdevice device) {
  FAKE_ENTER(cuDevicePrimaryCtxRetain);
  if (!IsDevice(device))
    return kInvalidDevice;
  Device& owner = TheDriver().devices[static_cast<size_t>(device)];
  if (owner.primary != nullptr) {
    ++owner.primary->references;
  } else if (const CUresult result = BeginContext(device, true, &owner.primary);
             result != kSuccess) {
    return result;
  }
  *handle = Handle(owner.primary);
  return kSuccess;
}

FAKE_HOOK(cuDevicePrimaryCtxRelease)(CUdevice device) {
  FAKE_ENTER(cuDevicePrimaryCtxRelease);
  return ReleasePrimary(device);
}

FAKE_HOOK(cuDevicePrimaryCtxRelease_v2)(CUdevice device) {
  FAKE_ENTER(cuDevicePrimaryCtxRelease_v2);
  return ReleasePrimary(device);
}

FAKE_HOOK(cuDevicePrimaryCtxReset)(CUdevice device) {
  FAKE_ENTER(cuDevicePrimaryCtxReset);
  return ResetPrimary(device);
}

FAKE_HOOK(cuDevicePrimaryCtxReset_v2)(CUdevice device) {
  FAKE_ENTER(cuDevicePrimaryCtxReset_v2);
  return ResetPrimary(device);
}

FAKE_CALL(cuDevicePrimaryCtxGetState)(CUdevice device, unsigned int* flags, int* active) {
  FAKE_ENTER(cuDevicePrimaryCtxGetState);
  if (!IsDevice(device))
    return kInvalidDevice;
  *flags = 0;
  *active = TheDriver().devices[static_cast<size_t>(device)].primary != nullptr ? 1 : 0;
  return kSuccess;
}

FAKE_HOOK(cuCtxSetCurrent)(CUcontext context) {
  FAKE_ENTER(cuCtxSetCurrent);
  return SetCurrent(context);
}

FAKE_HOOK(cuCtxPushCurrent)(CUcontext context) {
  FAKE_ENTER(cuCtxPushCurrent);
  return PushCurrent(context);
}

FAKE_HOOK(cuCtxPushCurrent_v2)(CUcontext context) {
  FAKE_ENTER(cuCtxPushCurrent_v2);
  return PushCurrent(context);
}

FAKE_CALL(cuCtxPopCurrent_v2)(CUcontext* context) {
  FAKE_ENTER(cuCtxPopCurrent_v2);
  auto& stack = ContextStack();
  if (stack.empty())
    return kInvalidContext;
  if (context != nullptr)
    *context = Handle(stack.back());
  stack.pop_back();
  return kSuccess;
}

// As an H200's driver: it still names a primary context that was released.
FAKE_CALL(cuCtxGetCurrent)(CUcontext* context) {
  FAKE_ENTER(cuCtxGetCurrent);
  const auto& stack = ContextStack();
  const bool is_released = !stack.empty() && TheDriver().released.count(stack.back()) != 0;
  *context = Handle(is_released ? stack.back() : CurrentContext());
  return kSuccess;
}

FAKE_CALL(cuCtxGetDevice)(CUdevice* device) {
  FAKE_ENTER(cuCtxGetDevice);
  const Context* const context = CurrentContext();
  const auto& stack = ContextStack();
  if (context == nullptr && !stack.empty() && TheDriver().released.count(stack.back()) != 0) {
    *device = TheDriver().released[stack.back()];
    return kSuccess;
  }
  if (context == nullptr)
    return kInvalidContext;
  *device = context->device;
  return kSuccess;
}

FAKE_HOOK(cuCtxSynchronize)() {
  FAKE_ENTER(cuCtxSynchronize);
  SynchronisePools();
  return kSuccess;
}

// The stack size decides over the local memory of all resident threads, and can shrink it.
FAKE_HOOK(cuCtxSetLimit)(CUlimit limit, size_t value) {
  FAKE_ENTER(cuCtxSetLimit);
  Context* const context = CurrentContext();
  if (context == nullptr)
    return kInvalidContext;
  if (limit < 0 || limit > kMaxLimit)
    return kInvalidValue;
  uint64_t wanted = 0, held = 0;
  if (limit == 0) {
    wanted = std::max(RoundUp(value * kThreads, kPage), kFreeLocalBytes);
    held = context->local_bytes;
  } else if (limit == 2) {
    wanted = RoundUp(value, kPage);
    held = context->heap_limit;
  }
  if (wanted > held) {
    if (!ChargeContext(context, wanted - held))
      return kOutOfMemory;
  } else {
    Refund(context->device, held - wanted);
    context->charged -= held - wanted;
  }
  if (limit == 0) {
    context->stack_limit = value;
    context->local_bytes = wanted;
  } else if (limit == 2) {
    context->heap_limit = wanted;
  }
  return kSuccess;
}

FAKE_OTHER(cuCtxGetLimit, size_t* value, CUlimit limit) {
  FAKE_ENTER(cuCtxGetLimit);
  const Context* const context = CurrentContext();
  if (context == nullptr)
    return kInvalidContext;
  *value = limit == 0 ? context->stack_limit : limit == 2 ? context->heap_limit : 0;
  return kSuccess;
}

}  // namespace fake
