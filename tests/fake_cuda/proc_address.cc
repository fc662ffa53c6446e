// SPDX-License-Identifier: Apache-2.0
#include "fake.h"

// cuGetProcAddress as the real driver does it: the version asked for chooses among the versions of
// a function, a flag chooses its per-thread twin, and the pointer is the exported function.
namespace fake {
namespace {

constexpr CUresult kStatusSuccess = 0;
constexpr int kStatusSymbolNotFound = 1;
constexpr int kStatusVersionTooOld = 2;
constexpr cuuint64_t kPerThreadFlag = 2;

struct Version {
  const char* name;
  int since;
  const char* symbol;
};
// Functions with more than one version, oldest first; every other one is as old as CUDA.
constexpr Version kVersions[] = {
    {"cuMemAlloc", 2000, "cuMemAlloc"},
    {"cuMemAlloc", 3020, "cuMemAlloc_v2"},
    {"cuMemAllocPitch", 3020, "cuMemAllocPitch_v2"},
    {"cuMemFree", 2000, "cuMemFree"},
    {"cuMemFree", 3020, "cuMemFree_v2"},
    {"cuMemAllocHost", 3020, "cuMemAllocHost_v2"},
    {"cuMemHostRegister", 6050, "cuMemHostRegister_v2"},
    {"cuMemPrefetchAsync", 8000, "cuMemPrefetchAsync"},
    {"cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync_v2"},
    {"cuMemAdvise", 12020, "cuMemAdvise_v2"},
    {"cuMemGetInfo", 3020, "cuMemGetInfo_v2"},
    {"cuMemGetAddressRange", 3020, "cuMemGetAddressRange_v2"},
    {"cuDeviceTotalMem", 3020, "cuDeviceTotalMem_v2"},
    {"cuDeviceGetUuid", 9020, "cuDeviceGetUuid"},
    {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
    {"cuArrayCreate", 3020, "cuArrayCreate_v2"},
    {"cuArray3DCreate", 3020, "cuArray3DCreate_v2"},
    {"cuIpcOpenMemHandle", 11000, "cuIpcOpenMemHandle_v2"},
    {"cuCtxCreate", 2000, "cuCtxCreate"},
    {"cuCtxCreate", 3020, "cuCtxCreate_v2"},
    {"cuCtxCreate", 11040, "cuCtxCreate_v3"},
    {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
    {"cuCtxDestroy", 2000, "cuCtxDestroy"},
    {"cuCtxDestroy", 4000, "cuCtxDestroy_v2"},
    {"cuCtxPushCurrent", 2000, "cuCtxPushCurrent"},
    {"cuCtxPushCurrent", 4000, "cuCtxPushCurrent_v2"},
    {"cuCtxPopCurrent", 4000, "cuCtxPopCurrent_v2"},
    {"cuDevicePrimaryCtxRelease", 7000, "cuDevicePrimaryCtxRelease"},
    {"cuDevicePrimaryCtxRelease", 11000, "cuDevicePrimaryCtxRelease_v2"},
    {"cuDevicePrimaryCtxReset", 7000, "cuDevicePrimaryCtxReset"},
    {"cuDevicePrimaryCtxReset", 11000, "cuDevicePrimaryCtxReset_v2"},
    {"cuStreamDestroy", 4000, "cuStreamDestroy_v2"},
    {"cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"},
    {"cuEventDestroy", 4000, "cuEventDestroy_v2"},
    {"cuGetProcAddress", 11030, "cuGetProcAddress"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
};

CUresult LookUp(const std::string& name,
                void** function,
                int version,
                cuuint64_t flags,
                int* status) {
  *function = nullptr;
  std::string symbol;
  bool has_versions = false;
  for (const Version& known : kVersions) {
    if (name != known.name)
      continue;
    has_versions = true;
    if (known.since <= version)
      symbol = known.symbol;
  }
  if (!has_versions)
    symbol = name;
  if (has_versions && symbol.empty()) {
    *status = kStatusVersionTooOld;
    return kNotFoundError;
  }
  void* found = nullptr;
  if ((flags & kPerThreadFlag) != 0)
    found = FindRegistered(symbol + "_ptsz");
  if (found == nullptr)
    found = FindRegistered(symbol);
  *status = found != nullptr ? kStatusSuccess : kStatusSymbolNotFound;
  *function = found;
  return found != nullptr ? kSuccess : kNotFoundError;
}

}  // namespace

FAKE_HOOK(cuGetProcAddress_v2)
(const char* symbol,
 void** function,
 int version,
 cuuint64_t flags,
 CUdriverProcAddressQueryResult* status) {
  int ignored = 0;
  return LookUp(symbol, function, version, flags, status != nullptr ? status : &ignored);
}

FAKE_HOOK(cuGetProcAddress)
(const char* symbol, void** function, int version, cuuint64_t flags) {
  int ignored = 0;
  return LookUp(symbol, function, version, flags, &ignored);
}

// What tests compare with: what was chosen, and what an address is called, past the symbol table.
FAKE_EXPORT void* FakeChoose(const char* symbol, int version, cuuint64_t flags) {
  void* function = nullptr;
  int ignored = 0;
  LookUp(symbol, &function, version, flags, &ignored);
  return function;
}

FAKE_EXPORT const char* FakeNameOf(void* function) {
  return NameOfRegistered(function);
}

}  // namespace fake
