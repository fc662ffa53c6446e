// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/share.h"

#include <cstring>

#include "format/records.h"
#include "probe/session/intern_table.h"
#include "probe/session/stream.h"

namespace vramscope::probe::cuda {

uint64_t KeyOf(const void* content, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(content);
  uint64_t hash = bytes;
  for (size_t done = 0; done < bytes; done += sizeof(uint64_t)) {
    uint64_t word = 0;
    const size_t left = bytes - done;
    std::memcpy(&word, at + done, left < sizeof word ? left : sizeof word);
    hash = HashMix(hash, word);
  }
  return hash != 0 ? hash : 1;
}

void RecordShare(HookId api,
                 const CallTimes& times,
                 format::ShareKind kind,
                 int32_t device,
                 uint64_t address,
                 uint64_t handle,
                 uint64_t key) {
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  scope->Append(format::Share{.begin = times.begin,
                              .end = times.end,
                              .api = scope->InternLiteral(HookName(api)),
                              .kind = static_cast<uint64_t>(kind),
                              .device = device,
                              .address = address,
                              .handle = handle,
                              .key = key});
}

uint64_t SizeAt(CUdeviceptr address) {
  CUdeviceptr base = 0;
  size_t size = 0;
  auto* const ask = DriverCall<CallId::cuMemGetAddressRange_v2>();
  return ask != nullptr && ask(&base, &size, address) == kSuccess ? size : 0;
}

CUdeviceptr BaseOf(CUdeviceptr address) {
  CUdeviceptr base = 0;
  size_t size = 0;
  auto* const ask = DriverCall<CallId::cuMemGetAddressRange_v2>();
  return ask != nullptr && ask(&base, &size, address) == kSuccess ? base : address;
}

}  // namespace vramscope::probe::cuda
