// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstring>

#include "format/records.h"
#include "probe/hooks/cuda/state/overflow.h"
#include "probe/hooks/cuda/state/reading.h"
#include "probe/hooks/cuda/state/record.h"
#include "probe/session/slot_table.h"
#include "probe/session/stream.h"
#include "probe/stack/stacks.h"

namespace vramscope::probe::cuda {

constinit VRAMSCOPE_TLS uint32_t t_cuda_depth = 0;
constinit VRAMSCOPE_TLS uintptr_t t_cuda_outermost = 0;
constinit VRAMSCOPE_TLS uint64_t t_cuda_call_begin = 0;
constinit std::atomic<bool> g_several_contexts{false};

namespace {

struct Context {
  std::atomic<int32_t> device;
  std::atomic<int32_t> references;
  std::atomic<ContextOrigin> origin;
};

// At once; further ones are not described, and counted as not measured.
constexpr size_t kMaxContexts = 256;
using ContextTable = SlotTable<Context, kMaxContexts>;
using ContextSlot = ContextTable::Slot;
constinit ContextTable g_contexts{};

constinit std::atomic<uint64_t> g_known_devices{0};
constinit std::atomic<uint64_t> g_released[kMaxDevices]{};  // primary contexts
constinit std::atomic<bool> g_runtime_written{false};
constinit std::atomic<bool> g_init_written{false};

// False if it was in the table before, or the table is full.
bool Insert(CUcontext context, int32_t device, ContextOrigin origin) {
  const auto inserted = g_contexts.Insert(Bits(context), [=](Context& value) {
    value.device.store(device, std::memory_order_relaxed);
    value.references.store(1, std::memory_order_relaxed);
    value.origin.store(origin, std::memory_order_relaxed);
  });
  if (inserted.outcome == ContextTable::Outcome::kFull)
    CountLoss(format::Loss::kNoReading);
  if (inserted.outcome != ContextTable::Outcome::kInserted)
    return false;
  if (!g_contexts.IsFirstSlot(inserted.slot))
    g_several_contexts.store(true, std::memory_order_relaxed);
  return true;
}

void WriteContextCreate(const char* api,
                        const CallTimes& times,
                        CUcontext context,
                        int32_t device) {
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  scope->Append(format::ContextCreate{.begin = times.begin,
                                      .end = times.end,
                                      .api = scope->InternLiteral(api),
                                      .context = Bits(context),
                                      .device = device,
                                      .stack = CapturePythonStack(*scope),
                                      .native = CaptureNativeStack(*scope)});
}

void WriteContextDestroy(HookId api, const CallTimes& times, ContextSlot* slot, uint64_t context) {
  const int32_t device = slot->value.device.load(std::memory_order_relaxed);
  if (!g_contexts.Remove(slot, context))
    return;
  ForgetCaptures(context);
  EndOverflow(context);
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  scope->Append(format::ContextDestroy{.begin = times.begin,
                                       .end = times.end,
                                       .api = scope->InternLiteral(HookName(api)),
                                       .context = context,
                                       .device = device});
}

// "GPU-00112233-4455-6677-8899-aabbccddeeff", as NVML writes it.
size_t FormatUuid(const CUuuid& uuid, char* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  char* const begin = out;
  std::memcpy(out, "GPU-", 4);
  out += 4;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10)
      *out++ = '-';
    *out++ = kHex[uuid.bytes[i] >> 4];
    *out++ = kHex[uuid.bytes[i] & 15];
  }
  return static_cast<size_t>(out - begin);
}

size_t FormatNumber(uint64_t value, char* out) {
  char digits[24];
  size_t count = 0;
  do
    digits[count++] = static_cast<char>('0' + value % 10);
  while ((value /= 10) != 0);
  for (size_t i = 0; i < count; ++i)
    out[i] = digits[count - 1 - i];
  return count;
}

void WriteRuntime(Stream& stream, const char* key, uint64_t value) {
  char text[24];
  const size_t size = FormatNumber(value, text);
  stream.Append(format::Runtime{.key = {key, std::strlen(key)}, .value = {text, size}});
}

void NoteRuntime() {
  if (g_runtime_written.load(std::memory_order_relaxed))
    return;
  int version = 0;
  if (auto* ask = DriverCall<CallId::cuDriverGetVersion>())
    ask(&version);
  uint64_t hooked = 0;
  for (const auto& real : g_real_hooks)
    hooked += real.load(std::memory_order_relaxed) != nullptr ? 1u : 0u;
  RecordScope scope(Want::kAlways);
  if (!scope || g_runtime_written.exchange(true, std::memory_order_relaxed))
    return;
  WriteRuntime(*scope, "cuda.driver_version", static_cast<uint64_t>(version));
  WriteRuntime(*scope, "cuda.hooks", hooked);
  DescribeAttachment(*scope);
}

bool HasPrimary(int32_t device) {
  bool found = false;
  g_contexts.Visit([&](const ContextSlot& slot, uint64_t) {
    found = slot.value.origin.load(std::memory_order_relaxed) == ContextOrigin::kPrimary &&
            slot.value.device.load(std::memory_order_relaxed) == device;
    return !found;
  });
  return found;
}

// The primary context that was released last stays the current one of threads that had it, in name,
// also once there is another one. The driver may have made it anew at the same address.
bool WasReleased(CUcontext context, int32_t device) {
  return device >= 0 && device < kMaxDevices &&
         g_released[device].load(std::memory_order_relaxed) == Bits(context) &&
         (!IsPrimaryActive(device) || HasPrimary(device));
}

}  // namespace

void NoteDevice(int32_t device) {
  if (device < 0 || device >= kMaxDevices)
    return;
  const uint64_t bit = uint64_t{1} << device;
  if ((g_known_devices.load(std::memory_order_relaxed) & bit) != 0)
    return;
  NoteRuntime();
  size_t total = 0;
  CUuuid uuid{};
  char name[128] = {};
  if (auto* ask = DriverCall<CallId::cuDeviceTotalMem_v2>())
    ask(&total, device);
  if (auto* ask = DriverCall<CallId::cuDeviceGetName>())
    ask(name, sizeof name - 1, device);
  // Version 2 knows the parts of a divided GPU.
  auto* ask_v2 = DriverCall<CallId::cuDeviceGetUuid_v2>();
  auto* ask_v1 = DriverCall<CallId::cuDeviceGetUuid>();
  if ((ask_v2 == nullptr || ask_v2(&uuid, device) != kSuccess) && ask_v1 != nullptr)
    ask_v1(&uuid, device);
  char text[48];
  const size_t text_size = FormatUuid(uuid, text);
  RecordScope scope(Want::kAlways);
  if (!scope || (g_known_devices.fetch_or(bit, std::memory_order_relaxed) & bit) != 0)
    return;
  scope->Append(format::Device{.device = device,
                               .total_bytes = total,
                               .uuid = {text, text_size},
                               .name = {name, strnlen(name, sizeof name)}});
}

bool IsPrimaryActive(int32_t device) {
  auto* const ask = DriverCall<CallId::cuDevicePrimaryCtxGetState>();
  unsigned int flags = 0;
  int active = 0;
  return ask != nullptr && ask(device, &flags, &active) == kSuccess && active != 0;
}

Place CurrentPlace() {
  auto* const current = DriverCall<CallId::cuCtxGetCurrent>();
  CUcontext context = nullptr;
  if (current == nullptr || current(&context) != kSuccess || context == nullptr)
    return {};
  ContextSlot* const slot = g_contexts.Find(Bits(context));
  if (slot != nullptr) {
    const int32_t known = slot->value.device.load(std::memory_order_relaxed);
    NoteDevice(known);
    if (known != format::kNoDevice)
      return {context, known};
  }
  CUdevice device = format::kNoDevice;
  auto* const current_device = DriverCall<CallId::cuCtxGetDevice>();
  if (current_device == nullptr || current_device(&device) != kSuccess)
    return {context, format::kNoDevice};
  NoteDevice(device);
  if (slot == nullptr && WasReleased(context, device))
    return {};
  if (slot != nullptr) {
    slot->value.device.store(device, std::memory_order_relaxed);
  } else if (Insert(context, device, ContextOrigin::kPrimary)) {
    // Every other kind of context comes from a call that is wrapped.
    const uint64_t now = Now();
    WriteContextCreate("primary context", {now, now}, context, device);
    RequestReading(device);
  }
  return {context, device};
}

void NoteContextCreate(HookId api,
                       const CallTimes& times,
                       CUcontext context,
                       int32_t device,
                       ContextOrigin origin) {
  NoteDevice(device);
  if (!Insert(context, device, origin))
    return;
  WriteContextCreate(HookName(api), times, context, device);
  RequestReading(device);
}

void NoteGreenContext(CUcontext context) {
  Insert(context, format::kNoDevice, ContextOrigin::kGreen);
}

int32_t NoteContextDestroy(HookId api, const CallTimes& times, CUcontext context) {
  ContextSlot* const slot = g_contexts.Find(Bits(context));
  if (slot == nullptr)
    return format::kNoDevice;
  const int32_t device = slot->value.device.load(std::memory_order_relaxed);
  WriteContextDestroy(api, times, slot, Bits(context));
  return device;
}

bool HasContext(int32_t device) {
  bool found = false;
  g_contexts.Visit([&](const ContextSlot& slot, uint64_t) {
    found = slot.value.origin.load(std::memory_order_relaxed) != ContextOrigin::kGreen &&
            (device == format::kNoDevice ||
             slot.value.device.load(std::memory_order_relaxed) == device);
    return !found;
  });
  return found;
}

void NotePrimaryDestroy(HookId api, const CallTimes& times, int32_t device) {
  g_contexts.Visit([&](ContextSlot& slot, uint64_t context) {
    if (slot.value.device.load(std::memory_order_relaxed) == device &&
        slot.value.origin.load(std::memory_order_relaxed) == ContextOrigin::kPrimary) {
      if (device >= 0 && device < kMaxDevices)
        g_released[device].store(context, std::memory_order_relaxed);
      WriteContextDestroy(api, times, &slot, context);
    }
    return true;
  });
}

bool ChangeReferences(CUcontext context, int change) {
  ContextSlot* const slot = g_contexts.Find(Bits(context));
  return slot != nullptr &&
         slot->value.references.fetch_add(change, std::memory_order_relaxed) + change == 0;
}

void NoteInit(const CallTimes& times) {
  if (g_init_written.load(std::memory_order_relaxed))
    return;
  RecordScope scope(Want::kAlways);
  if (!scope || g_init_written.exchange(true, std::memory_order_relaxed))
    return;
  scope->Append(format::Implicit{.begin = times.begin,
                                 .end = times.end,
                                 .api = scope->InternLiteral(HookName(HookId::cuInit)),
                                 .kind = static_cast<uint64_t>(format::ImplicitKind::kInit),
                                 .device = format::kNoDevice,
                                 .stack = CapturePythonStack(*scope),
                                 .native = CaptureNativeStack(*scope)});
}

uint64_t KnownDevices() {
  return g_known_devices.load(std::memory_order_relaxed);
}

void ForgetContexts(OtherThreads others) {
  g_contexts.Clear(others);
  for (auto& context : g_released)
    context.store(0, std::memory_order_relaxed);
  g_known_devices.store(0, std::memory_order_relaxed);
  g_runtime_written.store(false, std::memory_order_relaxed);
  g_init_written.store(false, std::memory_order_relaxed);
}

}  // namespace vramscope::probe::cuda
