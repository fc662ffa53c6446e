// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstring>

#include "format/records.h"
#include "probe/hooks/pjrt/live_buffers.h"
#include "probe/hooks/pjrt/readings.h"
#include "probe/hooks/pjrt/recorded.h"
#include "probe/stack/stacks.h"

// Buffers: what makes them, and what gives their memory back.
namespace vramscope::probe::pjrt {
namespace {

constinit LiveBuffers<32768> g_live{};

// What a PJRT_Memory or a PJRT_Device is: they live as long as their client, and are few. Any
// thread may fill a place in.
class Places {
 public:
  static constexpr int32_t kUnknown = -1, kOfHost = -2;

  // Calls `find` for a key that is not known yet.
  template <class Find>
  int32_t Get(const void* key, Find find) {
    for (Place& place : places_) {
      const void* found = place.key.load(std::memory_order_acquire);
      if (found == key)
        return place.device.load(std::memory_order_relaxed);
      if (found != nullptr)
        continue;
      const int32_t device = find();
      // Two threads may fill in one key twice; the first one is found.
      if (device != kUnknown && place.claimed.exchange(true, std::memory_order_relaxed) == false) {
        place.device.store(device, std::memory_order_relaxed);
        place.key.store(key, std::memory_order_release);
      }
      return device;
    }
    return find();
  }
  void Clear() {
    for (Place& place : places_) {
      place.key.store(nullptr, std::memory_order_relaxed);
      place.claimed.store(false, std::memory_order_relaxed);
    }
  }

 private:
  struct Place {
    std::atomic<const void*> key;
    std::atomic<int32_t> device;
    std::atomic<bool> claimed;
  };
  Place places_[128];
};
constinit Places g_devices{}, g_memories{};

bool NamesHost(const char* kind, size_t size) {
  constexpr char kHost[] = "host";
  for (size_t i = 0; i + sizeof kHost - 1 <= size; ++i) {
    if (std::memcmp(kind + i, kHost, sizeof kHost - 1) == 0)
      return true;
  }
  return false;
}

int32_t FindMemory(const Plugin& plugin, const void* memory) {
  Arguments<8> kind(memory);
  if (!plugin.Ask(Call::kMemory_Kind, &kind))
    return Places::kUnknown;
  if (NamesHost(kind.Get<const char*>(kSecondWord), kind.Get<size_t>(kSecondWord + 1)))
    return Places::kOfHost;
  Arguments<8> devices(memory);
  if (!plugin.Ask(Call::kMemory_AddressableByDevices, &devices) ||
      devices.Get<size_t>(kSecondWord + 1) != 1)
    return Places::kUnknown;
  return OrdinalOf(plugin, *devices.Get<const void* const*>(kSecondWord));
}

// The device of the buffer's memory.
int32_t DeviceOf(const Plugin& plugin, const void* buffer) {
  Arguments<8> memory(buffer);
  if (plugin.Ask(Call::kBuffer_Memory, &memory)) {
    auto* const found = memory.Get<const void*>(kSecondWord);
    const int32_t device = found == nullptr
                               ? Places::kUnknown
                               : g_memories.Get(found, [&] { return FindMemory(plugin, found); });
    if (device != Places::kUnknown)
      return device;
  }
  Arguments<8> device(buffer);
  return plugin.Ask(Call::kBuffer_Device, &device)
             ? OrdinalOf(plugin, device.Get<const void*>(kSecondWord))
             : Places::kUnknown;
}

// The buffer is the word `out` of the arguments, if the call succeeds.
void* Make(const Plugin& plugin, Call call, Word* arguments, size_t out, const Made& made) {
  const UnderWay under_way;
  void* const error = plugin.Get(call)(arguments);
  if (error != nullptr || SessionIsOff())
    return error;
  const void* const buffer = PointerAt(arguments, out);
  if (MakeScope scope(plugin, made); scope)
    scope.Buffer(buffer);
  return error;
}

}  // namespace

int32_t OrdinalOf(const Plugin& plugin, const void* device) {
  if (device == nullptr)
    return Places::kUnknown;
  return g_devices.Get(device, [&] {
    Arguments<8> hardware(device);
    if (!plugin.Ask(Call::kDevice_LocalHardwareId, &hardware))
      return Places::kUnknown;
    const auto ordinal = hardware.Get<int32_t>(kSecondWord);
    if (ordinal < 0)
      return Places::kUnknown;
    NoteDevice(plugin, device, ordinal);
    return ordinal;
  });
}

void ForgetPlaces() {
  g_devices.Clear();
  g_memories.Clear();
}

bool AskIsDeleted(const Plugin& plugin, const void* buffer) {
  Arguments<8> deleted(buffer);
  return plugin.Ask(Call::kBuffer_IsDeleted, &deleted) && deleted.Get<bool>(kSecondWord);
}

MakeScope::MakeScope(const Plugin& plugin, const Made& made)
    : plugin_(plugin), scope_(Want::kTensor), kind_(made.kind) {
  if (!scope_)
    return;
  now_ = Now();
  name_ = scope_->InternString(made.name, made.name_size);
  stack_ = CapturePythonStack(*scope_);
  native_ = g_flags.native ? CaptureNativeStack(*scope_) : 0;
}

void MakeScope::Append(const void* key,
                       uint64_t bytes,
                       int32_t device,
                       format::XlaBlockKind kind,
                       HloNames::Text path) {
  CountGivenOut(device, static_cast<int64_t>(RoundUp(bytes)));
  scope_->Append(format::XlaBlock{.time = now_,
                                  .address = reinterpret_cast<uintptr_t>(key),
                                  .size = RoundUp(bytes),
                                  .requested = bytes,
                                  .device = device,
                                  .kind = static_cast<uint64_t>(kind),
                                  .name = name_,
                                  .stack = stack_,
                                  .native = native_,
                                  .path = scope_->InternString(path.data, path.size)});
}

void MakeScope::Buffer(const void* buffer, HloNames::Text path) {
  if (buffer == nullptr)
    return;
  Arguments<8> size(buffer);
  if (!plugin_.Ask(Call::kBuffer_OnDeviceSizeInBytes, &size))
    return;
  const auto bytes = size.Get<size_t>(kSecondWord);
  const int32_t device = bytes == 0 ? Places::kUnknown : DeviceOf(plugin_, buffer);
  if (device < 0)
    return;
  if (!g_live.Insert(buffer, static_cast<uint32_t>(device), RoundUp(bytes), path.size != 0))
    return CountLoss(format::Loss::kXlaBuffers);
  Append(buffer, bytes, device, kind_, path);
}

void MakeScope::Temporary(const void* key, uint64_t bytes, int32_t device) {
  Append(key, bytes, device, format::XlaBlockKind::kTemporary, {});
}

bool NameBuffer(Stream& stream, const void* buffer, HloNames::Text path, bool anew) {
  bool was_named = false;
  const int32_t device = g_live.TakeName(buffer, &was_named);
  if (device < 0 || (was_named && !anew))
    return false;
  stream.Append(format::Name{.time = Now(),
                             .address = reinterpret_cast<uintptr_t>(buffer),
                             .size = 0,
                             .device = device,
                             .kind = static_cast<uint64_t>(format::NameKind::kPath),
                             .name = stream.InternString(path.data, path.size)});
  return !was_named;
}

void EndBlock(const void* key, uint64_t bytes, int32_t device) {
  CountGivenOut(device, -static_cast<int64_t>(RoundUp(bytes)));
  if (RecordScope scope(Want::kAlways); scope)
    scope->Append(format::BlockFree{
        .time = Now(), .address = reinterpret_cast<uintptr_t>(key), .size = 0, .device = device});
}

int32_t RecordedDeviceOf(const void* buffer) {
  return g_live.Find(buffer);
}

void EndBuffer(const void* buffer) {
  uint64_t bytes = 0;
  if (const int32_t device = g_live.Take(buffer, &bytes); device >= 0)
    EndBlock(buffer, bytes, device);
}

void* FromHost(const Plugin& plugin, Word* arguments) {
  return Make(plugin, Call::kClient_BufferFromHostBuffer, arguments, 14,
              {format::XlaBlockKind::kFromHost});
}

void* Uninitialized(const Plugin& plugin, Word* arguments) {
  return Make(plugin, Call::kClient_CreateUninitializedBuffer, arguments, 9,
              {format::XlaBlockKind::kUninitialized});
}

// The buffers of a transfer have memory from its begin on; they are known one after another.
void* RetrieveBuffer(const Plugin& plugin, Word* arguments) {
  return Make(plugin, Call::kAsyncHostToDeviceTransferManager_RetrieveBuffer, arguments, 4,
              {format::XlaBlockKind::kFromHost});
}

void* CopyToDevice(const Plugin& plugin, Word* arguments) {
  return Make(plugin, Call::kBuffer_CopyToDevice, arguments, 4, {format::XlaBlockKind::kCopy});
}

void* CopyToMemory(const Plugin& plugin, Word* arguments) {
  return Make(plugin, Call::kBuffer_CopyToMemory, arguments, 4, {format::XlaBlockKind::kCopy});
}

// The new buffer has the old one's memory.
void* Donate(const Plugin& plugin, Word* arguments) {
  const void* const old = PointerAt(arguments, kFirstWord);
  const UnderWay under_way;
  void* const error = plugin.Get(Call::kBuffer_DonateWithControlDependency)(arguments);
  if (error != nullptr || SessionIsOff())
    return error;
  if (AskIsDeleted(plugin, old))
    EndBuffer(old);
  if (MakeScope scope(plugin, {format::XlaBlockKind::kCopy}); scope)
    scope.Buffer(PointerAt(arguments, 5));
  return error;
}

void* Delete(const Plugin& plugin, Word* arguments) {
  const void* const buffer = PointerAt(arguments, kFirstWord);
  const UnderWay under_way;
  void* const error = plugin.Get(Call::kBuffer_Delete)(arguments);
  if (error == nullptr)
    EndBuffer(buffer);
  return error;
}

// Another thread may get a new buffer at the address as soon as it is destroyed.
void* Destroy(const Plugin& plugin, Word* arguments) {
  const UnderWay under_way;
  EndBuffer(PointerAt(arguments, kFirstWord));
  return plugin.Get(Call::kBuffer_Destroy)(arguments);
}

void ForgetBuffers() {
  g_live.Clear();
}

}  // namespace vramscope::probe::pjrt
