// SPDX-License-Identifier: Apache-2.0
//
// A library in NCCL's manner: ranges in a domain of its own, ended with a payload. One is never ended.
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <string.h>

__attribute__((visibility("default"))) void LibraryStep(void (*touch)(size_t), size_t kib) {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("steps of a library");
  nvtxEventAttributes_t attributes;
  memset(&attributes, 0, sizeof attributes);
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = "ncclCommInitRankConfig";
  const uint64_t rank = 1;
  const nvtxPayloadData_t payload = {NVTX_PAYLOAD_ENTRY_TYPE_UINT64, sizeof rank, &rank};
  nvtxDomainRangePushEx(domain, &attributes);
  nvtxDomainMarkEx(domain, &attributes);
  touch(kib);
  nvtxRangePopPayload(domain, &payload, 1);
  nvtxDomainRangePushEx(domain, &attributes);
}
