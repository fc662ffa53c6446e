// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/state/overflow.h"

#include <errno.h>

#include <atomic>
#include <cstring>

#include "base/memory_groups.h"
#include "format/records.h"
#include "probe/hooks/cuda/state/reading.h"
#include "probe/hooks/cuda/state/record.h"
#include "probe/session/session.h"
#include "probe/session/slot_table.h"
#include "probe/session/stream.h"

// The memory: a physical handle of the host's NUMA node next to the device, mapped at addresses of
// its own, and nothing of it known to the program but the first address.
namespace vramscope::probe::cuda {
namespace {

struct Held {
  std::atomic<uint64_t> asked_bytes;
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> context;
  std::atomic<int32_t> device;
};
constexpr size_t kMaxHeld = 8192;  // at once; beyond it the program gets the driver's own answer
using HeldTable = SlotTable<Held, kMaxHeld>;
constinit HeldTable g_held{};
// Freed by the program while streams were captured, when waiting for the device is forbidden.
constinit HeldTable g_freed_in_capture{};
constinit std::atomic<uint64_t> g_held_bytes{0};
constinit std::atomic<uint32_t> g_held_count{0};
constinit std::atomic<bool> g_on{false};
constinit std::atomic<uint32_t> g_notes{0};  // a bit for each that was written

// Found before the driver is there, constant afterwards.
constinit base::MemoryGroups g_groups{};

constexpr uint64_t kLeastGranularity = uint64_t{2} << 20;
// Devices that may use others' memory: a bit for each.
constinit std::atomic<uint64_t> g_peers{0};

uint64_t RoundUp(uint64_t value, uint64_t step) {
  return (value + step - 1) / step * step;
}

CUmemAllocationProp PropertiesNear(int32_t device) {
  CUmemAllocationProp properties{};
  properties.type = kAllocationPinned;
  int node = 0;
  auto* const ask = DriverCall<CallId::cuDeviceGetAttribute>();
  // -1 where the machine has one node and does not number it.
  if (ask == nullptr || ask(&node, kAttributeHostNumaId, device) != kSuccess || node < 0)
    node = 0;
  properties.location = {kLocationHostNuma, node};
  return properties;
}

uint64_t FindGranularity(const CUmemAllocationProp& properties) {
  auto* const ask = DriverCall<CallId::cuMemGetAllocationGranularity>();
  size_t bytes = 0;
  if (ask == nullptr || ask(&bytes, &properties, 0) != kSuccess)
    return kLeastGranularity;
  return bytes > kLeastGranularity ? RoundUp(bytes, kLeastGranularity) : kLeastGranularity;
}

// Counts the bytes where the bound and the machine have room for them.
bool Claim(uint64_t bytes) {
  const uint64_t bound = g_flags.overflow_bytes.load(std::memory_order_relaxed);
  if (g_held_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes > bound) {
    g_held_bytes.fetch_sub(bytes, std::memory_order_relaxed);
    NoteOverflow(OverflowNote::kSizeReached, nullptr, kSuccess);
    return false;
  }
  const int saved_errno = errno;
  const bool has_room = base::HostMemoryHeadroomBytes(g_groups) >= bytes;
  errno = saved_errno;
  if (!has_room) {
    g_held_bytes.fetch_sub(bytes, std::memory_order_relaxed);
    NoteOverflow(OverflowNote::kHostReached, nullptr, kSuccess);
  }
  return has_room;
}

// One mapping under construction: an unfinished one is undone.
class Mapping {
 public:
  explicit Mapping(uint64_t bytes) : bytes_(bytes) {}
  ~Mapping() {
    if (mapped_ && !kept_)
      Real<HookId::cuMemUnmap>()(address_, bytes_);
    if (address_ != 0 && !kept_)
      Real<HookId::cuMemAddressFree>()(address_, bytes_);
    // The mapping holds the memory.
    if (created_)
      Real<HookId::cuMemRelease>()(handle_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // False if the driver cannot, with the call that said so.
  bool Make(int32_t device, const CUmemAllocationProp& properties) {
    created_ = Did("cuMemCreate", Real<HookId::cuMemCreate>(), &handle_, bytes_, &properties, 0ull);
    if (!created_ || !Did("cuMemAddressReserve", Real<HookId::cuMemAddressReserve>(), &address_,
                          bytes_, kLeastGranularity, CUdeviceptr{0}, 0ull)) {
      address_ = 0;
      return false;
    }
    mapped_ = Did("cuMemMap", Real<HookId::cuMemMap>(), address_, bytes_, size_t{0}, handle_, 0ull);
    CUmemAccessDesc access[kMaxDevices];
    access[0] = {{kLocationDevice, device}, kAccessReadWrite};
    size_t count = 1;
    const uint64_t peers = g_peers.load(std::memory_order_relaxed);
    for (int32_t peer = 0; peer < kMaxDevices; ++peer) {
      if (peer != device && (peers >> peer & 1) != 0)
        access[count++] = {{kLocationDevice, peer}, kAccessReadWrite};
    }
    return mapped_ && Did("cuMemSetAccess", DriverCall<CallId::cuMemSetAccess>(), address_, bytes_,
                          static_cast<const CUmemAccessDesc*>(access), count);
  }
  CUdeviceptr Keep() {
    kept_ = true;
    return address_;
  }
  CUdeviceptr address() const { return address_; }
  const char* failed_call() const { return failed_call_; }
  CUresult failure() const { return failure_; }

 private:
  template <class Function, class... Args>
  bool Did(const char* name, Function* real, Args... args) {
    failure_ = real != nullptr ? real(args...) : kNotFoundError;
    if (failure_ != kSuccess)
      failed_call_ = name;
    return failure_ == kSuccess;
  }

  const uint64_t bytes_;
  CUmemGenericAllocationHandle handle_ = 0;
  CUdeviceptr address_ = 0;
  bool created_ = false;
  bool mapped_ = false;
  bool kept_ = false;
  const char* failed_call_ = nullptr;
  CUresult failure_ = kSuccess;
};

// Makes the context current for a moment, where it is not.
class AsCurrent {
 public:
  explicit AsCurrent(uint64_t context) {
    auto* const current = DriverCall<CallId::cuCtxGetCurrent>();
    CUcontext now = nullptr;
    if (current != nullptr && current(&now) == kSuccess && Bits(now) == context)
      return;
    auto* const push = Real<HookId::cuCtxPushCurrent_v2>();
    pushed_ = push != nullptr && push(reinterpret_cast<CUcontext>(context)) == kSuccess;
  }
  ~AsCurrent() {
    CUcontext popped = nullptr;
    if (auto* const pop = DriverCall<CallId::cuCtxPopCurrent_v2>(); pushed_ && pop != nullptr)
      pop(&popped);
  }
  AsCurrent(const AsCurrent&) = delete;
  AsCurrent& operator=(const AsCurrent&) = delete;

 private:
  bool pushed_ = false;
};

// Nothing uses it any more.
CUresult Unmap(CUdeviceptr address, uint64_t bytes) {
  const Place place = CurrentPlace();
  const FreeMemory before = BeginEstimate(place);
  CallTimes times{.begin = Now(), .end = 0};
  const CUresult result = Real<HookId::cuMemUnmap>()(address, bytes);
  if (result == kSuccess) {
    Real<HookId::cuMemAddressFree>()(address, bytes);
    g_held_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  }
  times.end = Now();
  FinishEstimate(HookId::cuMemUnmap, times, result, format::ImplicitKind::kOther, WriteWhen::kMoved,
                 place, before, {});
  return result;
}

CUresult WaitForDevice(uint64_t context) {
  const AsCurrent current(context);
  return Real<HookId::cuCtxSynchronize>()();
}

void UnmapWhatWasFreedInCaptures() {
  if (IsAnyStreamCapturing())
    return;
  g_freed_in_capture.Visit([](HeldTable::Slot& slot, uint64_t address) {
    const uint64_t bytes = slot.value.bytes.load(std::memory_order_relaxed);
    const uint64_t context = slot.value.context.load(std::memory_order_relaxed);
    if (g_freed_in_capture.Remove(&slot, address) && WaitForDevice(context) == kSuccess)
      Unmap(address, bytes);
    return true;
  });
}

void Fill(Held& to, uint64_t asked, uint64_t bytes, uint64_t context, int32_t device) {
  to.asked_bytes.store(asked, std::memory_order_relaxed);
  to.bytes.store(bytes, std::memory_order_relaxed);
  to.context.store(context, std::memory_order_relaxed);
  to.device.store(device, std::memory_order_relaxed);
}

}  // namespace

bool OverflowIsOn() {
  return g_on.load(std::memory_order_relaxed);
}

void PrepareOverflow() {
  if (g_flags.overflow_bytes.load(std::memory_order_relaxed) == 0 ||
      g_on.load(std::memory_order_relaxed))
    return;
  const int saved_errno = errno;
  g_groups.Find();
  errno = saved_errno;
  g_on.store(true, std::memory_order_release);
}

void* FindOverflowWrapper(const char* name) {
  for (size_t i = 0; OverflowIsOn() && i < kOverflowWrapperCount; ++i) {
    if (std::strcmp(kOverflowWrappers[i].name, name) == 0)
      return kOverflowWrappers[i].wrapper;
  }
  return nullptr;
}

CUdeviceptr TakeHostMemory(const Place& place, size_t size, uint64_t* taken_bytes) {
  // A thread under capture may not map memory.
  if (size == 0 || place.context == nullptr || place.device < 0 || IsAnyStreamCapturing())
    return 0;
  UnmapWhatWasFreedInCaptures();
  const CUmemAllocationProp properties = PropertiesNear(place.device);
  const uint64_t bytes = RoundUp(size, FindGranularity(properties));
  if (bytes < size || !Claim(bytes))
    return 0;
  const FreeMemory before = BeginEstimate(place);
  CallTimes times{.begin = Now(), .end = 0};
  Mapping mapping(bytes);
  const bool made = mapping.Make(place.device, properties);
  times.end = Now();
  FinishEstimate(HookId::cuMemMap, times, made ? kSuccess : kNotFoundError,
                 format::ImplicitKind::kOther, WriteWhen::kMoved, place, before, {});
  if (made) {
    const auto inserted = g_held.Insert(mapping.address(), [&](Held& held) {
      Fill(held, size, bytes, Bits(place.context), place.device);
    });
    if (inserted.outcome == HeldTable::Outcome::kInserted) {
      g_held_count.fetch_add(1, std::memory_order_relaxed);
      *taken_bytes = bytes;
      return mapping.Keep();
    }
    NoteOverflow(OverflowNote::kTooMany, nullptr, kSuccess);
  } else {
    NoteOverflow(OverflowNote::kUnavailable, mapping.failed_call(), mapping.failure());
  }
  g_held_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  return 0;
}

bool IsHeld(CUdeviceptr address) {
  return address != 0 && g_held_count.load(std::memory_order_relaxed) != 0 &&
         g_held.Find(address) != nullptr;
}

bool FindHeld(CUdeviceptr address, HeldRange* range) {
  if (g_held_count.load(std::memory_order_relaxed) == 0)
    return false;
  bool found = false;
  g_held.Visit([&](HeldTable::Slot& slot, uint64_t begin) {
    const uint64_t bytes = slot.value.bytes.load(std::memory_order_relaxed);
    if (address < begin || address - begin >= bytes)
      return true;
    *range = {
        .begin = begin,
        .asked_bytes = slot.value.asked_bytes.load(std::memory_order_relaxed),
        .device = slot.value.device.load(std::memory_order_relaxed),
        .context = reinterpret_cast<CUcontext>(slot.value.context.load(std::memory_order_relaxed))};
    found = true;
    return false;
  });
  return found;
}

CUresult ReleaseHeld(CUdeviceptr address) {
  HeldTable::Slot* const slot = g_held.Find(address);
  if (slot == nullptr)
    return kInvalidValueError;
  const uint64_t asked = slot->value.asked_bytes.load(std::memory_order_relaxed);
  const uint64_t bytes = slot->value.bytes.load(std::memory_order_relaxed);
  const uint64_t context = slot->value.context.load(std::memory_order_relaxed);
  const int32_t device = slot->value.device.load(std::memory_order_relaxed);
  if (!g_held.Remove(slot, address))
    return kInvalidValueError;  // freed twice, at once
  CUresult result = kSuccess;
  if (IsAnyStreamCapturing()) {
    g_freed_in_capture.Insert(address,
                              [&](Held& held) { Fill(held, asked, bytes, context, device); });
  } else {
    UnmapWhatWasFreedInCaptures();
    result = WaitForDevice(context);
    if (result == kSuccess)
      result = Unmap(address, bytes);
  }
  if (result == kSuccess)
    g_held_count.fetch_sub(1, std::memory_order_relaxed);
  else
    g_held.Restore(slot, address);
  return result;
}

void EndOverflow(uint64_t context) {
  const auto end_in = [context](HeldTable& table) {
    table.Visit([&](HeldTable::Slot& slot, uint64_t address) {
      const uint64_t bytes = slot.value.bytes.load(std::memory_order_relaxed);
      if (slot.value.context.load(std::memory_order_relaxed) != context ||
          !table.Remove(&slot, address))
        return true;
      if (&table == &g_held)
        g_held_count.fetch_sub(1, std::memory_order_relaxed);
      Unmap(address, bytes);
      return true;
    });
  };
  if (!OverflowIsOn())
    return;
  end_in(g_held);
  end_in(g_freed_in_capture);
}

void ShareOverflowWith(int32_t device) {
  auto* const set = DriverCall<CallId::cuMemSetAccess>();
  if (!OverflowIsOn() || set == nullptr || device < 0 || device >= kMaxDevices)
    return;
  g_peers.fetch_or(uint64_t{1} << device, std::memory_order_relaxed);
  const CUmemAccessDesc access{{kLocationDevice, device}, kAccessReadWrite};
  g_held.Visit([&](HeldTable::Slot& slot, uint64_t address) {
    if (slot.value.device.load(std::memory_order_relaxed) != device)
      set(address, slot.value.bytes.load(std::memory_order_relaxed), &access, 1);
    return true;
  });
}

void ForgetOverflow() {
  g_held.Clear(OtherThreads::kGone);
  g_freed_in_capture.Clear(OtherThreads::kGone);
  g_held_bytes.store(0, std::memory_order_relaxed);
  g_held_count.store(0, std::memory_order_relaxed);
  g_peers.store(0, std::memory_order_relaxed);
}

void NoteOverflow(OverflowNote note, const char* call, CUresult result) {
  const uint32_t bit = 1u << static_cast<unsigned>(note);
  if ((g_notes.fetch_or(bit, std::memory_order_relaxed) & bit) != 0)
    return;
  char text[96];
  size_t size = 0;
  const auto add = [&](const char* part) {
    const size_t length = std::strlen(part);
    std::memcpy(text + size, part, length);
    size += length;
  };
  switch (note) {
    case OverflowNote::kUnavailable: {
      add(call);
      add(" of host memory said ");
      char digits[12];
      size_t count = 0;
      auto number = static_cast<unsigned>(result);
      do
        digits[count++] = static_cast<char>('0' + number % 10);
      while ((number /= 10) != 0);
      while (count != 0)
        text[size++] = digits[--count];
      break;
    }
    case OverflowNote::kSizeReached:
      add("the bound that --overflow sets was reached");
      break;
    case OverflowNote::kHostReached:
      add("the host's free memory, or the limit of the control group, was reached");
      break;
    case OverflowNote::kTooMany:
      add("more allocations than it can hold");
      break;
  }
  static constexpr const char* kKeys[] = {"overflow.unavailable", "overflow.limit",
                                          "overflow.limit", "overflow.limit"};
  const char* const key = kKeys[static_cast<size_t>(note)];
  if (RecordScope scope(Want::kAlways); scope)
    scope->Append(format::Runtime{.key = {key, std::strlen(key)}, .value = {text, size}});
}

}  // namespace vramscope::probe::cuda
