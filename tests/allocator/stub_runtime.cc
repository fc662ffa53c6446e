// SPDX-License-Identifier: Apache-2.0
// A CUDA runtime without a GPU, as far as PyTorch's allocator needs it: memory is numbers, and an
// event is over when the program says so. differential.py adds a function that returns 0 for every
// other symbol, and links it as libcudart.so.12 or .13. It does what SimulatedDriver does.
#include <cstdint>
#include <cstring>
#include <map>

extern "C" {

uint64_t stub_used_bytes = 0;
uint64_t stub_capacity_bytes = uint64_t{80} << 30;

struct StubEvent {
  uint64_t stream;
  uint64_t number;
};

namespace {

constexpr uint64_t kPageBytes = uint64_t{2} << 20;
constexpr uint64_t kDeviceBytes = uint64_t{80} << 30;
constexpr int kOutOfMemory = 2;  // cudaErrorMemoryAllocation and CUDA_ERROR_OUT_OF_MEMORY
constexpr int kNotReady = 600;   // cudaErrorNotReady
constexpr int kInvalidValue = 1;
// Offsets in cudaDeviceProp, the same in CUDA 12 and 13.
constexpr size_t kTotalGlobalMemory = 288;
constexpr size_t kMajor = 360;

uint64_t next_address = uint64_t{0x7000} << 32;
uint64_t next_handle = 0;

std::map<uint64_t, uint64_t>& Sizes() {
  static auto* const sizes = new std::map<uint64_t, uint64_t>();
  return *sizes;
}
std::map<uint64_t, uint64_t>& Recorded() {
  static auto* const recorded = new std::map<uint64_t, uint64_t>();
  return *recorded;
}
std::map<uint64_t, uint64_t>& Finished() {
  static auto* const finished = new std::map<uint64_t, uint64_t>();
  return *finished;
}

uint64_t WholePages(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

bool Take(uint64_t bytes) {
  if (stub_used_bytes + bytes > stub_capacity_bytes)
    return false;
  stub_used_bytes += bytes;
  return true;
}

int MemAddressReserve(uint64_t* address, size_t bytes, size_t, uint64_t, unsigned long long) {
  *address = next_address;
  next_address += WholePages(bytes);
  return 0;
}

int MemCreate(uint64_t* handle, size_t bytes, const void*, unsigned long long) {
  if (bytes % kPageBytes != 0)
    return kInvalidValue;
  if (!Take(bytes))
    return kOutOfMemory;
  *handle = ++next_handle;
  Sizes()[next_handle] = bytes;
  return 0;
}

int MemRelease(uint64_t handle) {
  stub_used_bytes -= Sizes()[handle];
  Sizes().erase(handle);
  return 0;
}

int DeviceGetAttribute(int* value, int, int) {
  *value = 0;
  return 0;
}

int Nothing() {
  return 0;
}

}  // namespace

void stub_finish(uint64_t stream) {
  Finished()[stream] = Recorded()[stream];
}

int cudaMalloc(void** out, size_t bytes) {
  const uint64_t taken = WholePages(bytes);
  *out = nullptr;
  if (!Take(taken))
    return kOutOfMemory;
  *out = reinterpret_cast<void*>(next_address);
  Sizes()[next_address] = taken;
  next_address += taken;
  return 0;
}

int cudaFree(void* address) {
  const auto it = Sizes().find(reinterpret_cast<uint64_t>(address));
  if (it == Sizes().end())
    return kInvalidValue;
  stub_used_bytes -= it->second;
  Sizes().erase(it);
  return 0;
}

int cudaMemGetInfo(size_t* free, size_t* total) {
  *free = stub_capacity_bytes - stub_used_bytes;
  *total = kDeviceBytes;
  return 0;
}

int cudaGetDeviceCount(int* count) {
  *count = 1;
  return 0;
}

int cudaGetDevice(int* device) {
  *device = 0;
  return 0;
}

int cudaGetDeviceProperties(void* properties, int) {
  auto* const bytes = static_cast<char*>(properties);
  const int major = 9;
  std::memset(bytes, 0, 512);
  std::memcpy(bytes + kTotalGlobalMemory, &kDeviceBytes, sizeof kDeviceBytes);
  std::memcpy(bytes + kMajor, &major, sizeof major);
  return 0;
}

int cudaGetDeviceProperties_v2(void* properties, int device) {
  return cudaGetDeviceProperties(properties, device);
}

int cudaStreamIsCapturing(void*, int* status) {
  *status = 0;
  return 0;
}

int cudaEventCreateWithFlags(StubEvent** event, unsigned) {
  *event = new StubEvent();
  return 0;
}

int cudaEventDestroy(StubEvent* event) {
  delete event;
  return 0;
}

int cudaEventRecord(StubEvent* event, void* stream) {
  event->stream = reinterpret_cast<uint64_t>(stream);
  event->number = ++Recorded()[event->stream];
  return 0;
}

int cudaEventQuery(StubEvent* event) {
  return event->number <= Finished()[event->stream] ? 0 : kNotReady;
}

int cudaEventSynchronize(StubEvent* event) {
  uint64_t& finished = Finished()[event->stream];
  finished = event->number > finished ? event->number : finished;
  return 0;
}

int cudaDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}

const char* cudaGetErrorString(int) {
  return "an error of the stub";
}

const char* cudaGetErrorName(int) {
  return "stub";
}

int cudaGetDriverEntryPointByVersion(const char* name,
                                     void** entry,
                                     unsigned,
                                     unsigned long long,
                                     int* result) {
  if (result != nullptr)
    *result = 0;
  void* found = reinterpret_cast<void*>(&Nothing);
  if (std::strcmp(name, "cuMemAddressReserve") == 0)
    found = reinterpret_cast<void*>(&MemAddressReserve);
  else if (std::strcmp(name, "cuMemCreate") == 0)
    found = reinterpret_cast<void*>(&MemCreate);
  else if (std::strcmp(name, "cuMemRelease") == 0)
    found = reinterpret_cast<void*>(&MemRelease);
  else if (std::strcmp(name, "cuDeviceGetAttribute") == 0)
    found = reinterpret_cast<void*>(&DeviceGetAttribute);
  *entry = found;
  return 0;
}

int cudaGetDriverEntryPoint(const char* name, void** entry, unsigned long long flags, int* result) {
  return cudaGetDriverEntryPointByVersion(name, entry, 0, flags, result);
}

}  // extern "C"
