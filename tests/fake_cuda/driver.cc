// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fake.h"
#include "truth.h"

// Initialisation, devices, accounts, and the injection of failures and delays.
namespace fake {
namespace {

struct Injection {
  std::string name;
  uint64_t value = 0;
  bool always = false;
  uint64_t calls = 0;
};

// "NAME:NUMBER,NAME:*"
std::vector<Injection> ParseInjections(const char* variable) {
  std::vector<Injection> injections;
  const char* const text = getenv(variable);
  std::string rest = text != nullptr ? text : "";
  while (!rest.empty()) {
    const std::string item = rest.substr(0, rest.find(','));
    rest = item.size() < rest.size() ? rest.substr(item.size() + 1) : "";
    const size_t colon = item.find(':');
    if (colon == std::string::npos)
      continue;
    const std::string value = item.substr(colon + 1);
    injections.push_back(
        {item.substr(0, colon), strtoull(value.c_str(), nullptr, 10), value == "*"});
  }
  return injections;
}

std::vector<Injection>& Failures() {
  static auto* injections = new auto(ParseInjections("VRAMSCOPE_FAKE_FAIL"));
  return *injections;
}

std::vector<Injection>& Delays() {
  static auto* injections = new auto(ParseInjections("VRAMSCOPE_FAKE_DELAY_US"));
  return *injections;
}

std::map<std::string, void*>& Registry() {
  static auto* registry = new std::map<std::string, void*>;
  return *registry;
}

std::vector<Injection>& Secrets() {
  static auto* injections = new auto(ParseInjections("VRAMSCOPE_FAKE_SECRET"));
  return *injections;
}

// What only asks is asked by the probe too, and does not count.
bool IsProgramsCall(const char* name) {
  static const auto* names = new std::set<std::string>{
#define VRAMSCOPE_CUDA_HOOK(name, ...) #name,
#include "probe/hooks/cuda/cuda_hooks.def"
  };
  return names->count(name) != 0;
}

// As the real driver does: once, within the first cuInit.
void CallInjection() {
  const char* const file = getenv("CUDA_INJECTION64_PATH");
  if (file == nullptr || *file == '\0')
    return;
  void* const library = dlopen(file, RTLD_NOW);
  void* const initialize = library != nullptr ? dlsym(library, "InitializeInjection") : nullptr;
  if (initialize != nullptr)
    reinterpret_cast<int (*)()>(initialize)();
}

}  // namespace

const char* NameOfRegistered(const void* function) {
  for (const auto& [name, registered] : Registry()) {
    if (registered == function)
      return name.c_str();
  }
  return nullptr;
}

bool Register(const char* name, void* function) {
  return Registry().emplace(name, function).second;
}

void* FindRegistered(const std::string& name) {
  const auto found = Registry().find(name);
  return found != Registry().end() ? found->second : nullptr;
}

// Never destroyed: programs call the driver from destructors.
Driver& TheDriver() {
  static auto* driver = new Driver;
  return *driver;
}

std::vector<Context*>& ContextStack() {
  thread_local std::vector<Context*> stack;
  return stack;
}

Context* CurrentContext() {
  auto& stack = ContextStack();
  if (stack.empty())
    return nullptr;
  return TheDriver().contexts.count(stack.back()) != 0 ? stack.back() : nullptr;
}

bool EnterCall(const char* name) {
  for (const Injection& delay : Delays()) {
    if (delay.name == name)
      usleep(static_cast<useconds_t>(delay.value));
  }
  Driver& driver = TheDriver();
  const std::lock_guard lock(driver.mutex);
  if (driver.fail_after != kFailNone && IsProgramsCall(name) && driver.fail_after-- == 0) {
    driver.fail_after = kFailNone;
    driver.failing_late = driver.fail_late;
    if (!driver.fail_late)
      return true;
  }
  for (Injection& secret : Secrets()) {
    if (secret.name == name && ++secret.calls == secret.value)
      Charge(0, kSecretBytes);
  }
  for (Injection& failure : Failures()) {
    if (failure.name == name && (++failure.calls == failure.value || failure.always))
      return true;
  }
  return false;
}

bool FailsLate() {
  Driver& driver = TheDriver();
  return std::exchange(driver.failing_late, false);
}

bool Charge(int device, uint64_t bytes) {
  Device& target = TheDriver().devices[static_cast<size_t>(device)];
  const uint64_t limit = target.books->total_bytes - target.books->reserved_bytes;
  if (bytes > limit || FakeBooksDeviceUsed(target.books) > limit - bytes)
    return false;
  __atomic_fetch_add(&target.row->process_bytes, static_cast<int64_t>(bytes), __ATOMIC_RELAXED);
  __atomic_fetch_add(&target.row->device_bytes, static_cast<int64_t>(bytes), __ATOMIC_RELAXED);
  return true;
}

void Refund(int device, uint64_t bytes) {
  Device& target = TheDriver().devices[static_cast<size_t>(device)];
  __atomic_fetch_sub(&target.row->process_bytes, static_cast<int64_t>(bytes), __ATOMIC_RELAXED);
  __atomic_fetch_sub(&target.row->device_bytes, static_cast<int64_t>(bytes), __ATOMIC_RELAXED);
}

bool ChargeContext(Context* context, uint64_t bytes) {
  if (!Charge(context->device, bytes))
    return false;
  context->charged += bytes;
  return true;
}

uint64_t AddressSpace::Take(uint64_t size, uint64_t alignment) {
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    const uint64_t begin = RoundUp(hole->first, alignment);
    const uint64_t end = hole->first + hole->second;
    if (begin + size > end)
      continue;
    const uint64_t hole_begin = hole->first;
    holes_.erase(hole);
    if (begin > hole_begin)
      holes_[hole_begin] = begin - hole_begin;
    if (begin + size < end)
      holes_[begin + size] = end - begin - size;
    return begin;
  }
  const uint64_t begin = RoundUp(next_, alignment);
  if (begin + size > end_)
    return 0;
  if (begin > next_)
    holes_[next_] = begin - next_;
  next_ = begin + size;
  return begin;
}

void AddressSpace::Give(uint64_t address, uint64_t size) {
  if (size == 0)
    return;
  auto hole = holes_.emplace(address, size).first;
  const auto next = std::next(hole);
  if (next != holes_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    holes_.erase(next);
  }
  if (hole == holes_.begin())
    return;
  const auto previous = std::prev(hole);
  if (previous->first + previous->second == hole->first) {
    previous->second += hole->second;
    holes_.erase(hole);
  }
}

FAKE_HOOK(cuInit)(unsigned int) {
  const bool injected_failure = EnterCall("cuInit");
  Driver& driver = TheDriver();
  const std::lock_guard lock(driver.mutex);
  if (injected_failure)
    return kOutOfMemory;
  const auto pid = static_cast<uint32_t>(getpid());
  if (driver.init_pid == pid)
    return kSuccess;
  if (driver.init_pid != 0)
    return kNotInitialised;  // a forked child
  driver.books = FakeBooksOpen();
  if (driver.books == nullptr || driver.books->device_count == 0)
    return kNoDeviceError;
  for (uint32_t i = 0; i < driver.books->device_count; ++i) {
    Device device;
    device.books = &driver.books->devices[i];
    device.row = FakeBooksProcess(device.books);
    if (device.row == nullptr)
      return kOutOfMemory;
    __atomic_fetch_add(&device.row->device_bytes, kInitDeviceBytes, __ATOMIC_RELAXED);
    device.default_pool = new Pool{.device = static_cast<int>(i), .is_default = true};
    device.current_pool = device.default_pool;
    driver.devices.push_back(device);
  }
  if (!BeginCheckpoints())
    return kOutOfMemory;
  driver.init_pid = pid;
  CallInjection();
  return kSuccess;
}

FAKE_CALL(cuDriverGetVersion)(int* version) {
  *version = 13000;
  return kSuccess;
}

FAKE_OTHER(cuDeviceGetCount, int* count) {
  FAKE_ENTER(cuDeviceGetCount);
  *count = static_cast<int>(TheDriver().devices.size());
  return kSuccess;
}

// Of the host's NUMA node: a machine that has one only.
FAKE_CALL(cuDeviceGetAttribute)(int* value, CUdevice_attribute attribute, CUdevice device) {
  FAKE_ENTER(cuDeviceGetAttribute);
  if (!IsDevice(device))
    return kInvalidDevice;
  *value = attribute == kAttributeHostNumaId ? -1 : 0;
  return kSuccess;
}

FAKE_OTHER(cuDeviceGet, CUdevice* device, int ordinal) {
  FAKE_ENTER(cuDeviceGet);
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= TheDriver().devices.size())
    return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

FAKE_CALL(cuDeviceGetName)(char* name, int size, CUdevice device) {
  FAKE_ENTER(cuDeviceGetName);
  strncpy(name, TheDriver().books->devices[device].name, static_cast<size_t>(size));
  return kSuccess;
}

FAKE_CALL(cuDeviceTotalMem_v2)(size_t* bytes, CUdevice device) {
  FAKE_ENTER(cuDeviceTotalMem_v2);
  const FakeDevice& books = TheDriver().books->devices[device];
  *bytes = books.total_bytes - books.reserved_bytes;
  return kSuccess;
}

FAKE_CALL(cuDeviceGetUuid)(CUuuid* uuid, CUdevice device) {
  FAKE_ENTER(cuDeviceGetUuid);
  memcpy(uuid->bytes, TheDriver().books->devices[device].uuid_bytes, 16);
  return kSuccess;
}

FAKE_CALL(cuDeviceGetUuid_v2)(CUuuid* uuid, CUdevice device) {
  return cuDeviceGetUuid(uuid, device);
}

FAKE_CALL(cuMemGetInfo_v2)(size_t* free, size_t* total) {
  FAKE_ENTER(cuMemGetInfo_v2);
  InvalidateCaptures();
  const Context* const context = CurrentContext();
  if (context == nullptr)
    return kInvalidContext;
  const FakeDevice& books = TheDriver().books->devices[context->device];
  *total = books.total_bytes - books.reserved_bytes;
  *free = *total - FakeBooksDeviceUsed(&books);
  return kSuccess;
}

// The tables are private to NVIDIA's libraries.
FAKE_OTHER(cuGetExportTable, const void** table, const CUuuid*) {
  *table = nullptr;
  return kNotFoundError;
}

}  // namespace fake
