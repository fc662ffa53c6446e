// SPDX-License-Identifier: Apache-2.0
//
// A fake libc10_cuda.so: it allocates segments by cudaMalloc and reports the blocks in them, both
// through its PLT.
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

void report(void*, int64_t, size_t, size_t, uint16_t) __asm__(
    "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
int cudaMalloc(void** pointer, size_t size);
int cudaFree(void* pointer);

static size_t g_allocated, g_reserved;
static const uint16_t kDevice = 1;  // struct Device { int8_t type = CUDA; int8_t index = 0; }

EXPORT void* late_segment(size_t size) {
  void* pointer = NULL;
  if (cudaMalloc(&pointer, size) != 0)
    return NULL;
  g_reserved += size;
  return pointer;
}

EXPORT int late_release(void* segment, size_t size) {
  g_reserved -= size;
  return cudaFree(segment);
}

EXPORT void late_block(void* pointer, size_t size) {
  g_allocated += size;
  report(pointer, (int64_t)size, g_allocated, g_reserved, kDevice);
}

EXPORT void late_block_free(void* pointer, size_t size) {
  g_allocated -= size;
  report(pointer, -(int64_t)size, g_allocated, g_reserved, kDevice);
}
