// SPDX-License-Identifier: Apache-2.0
//
// A fake libc10.so for programs that load the probe late: the functions that its own code and the
// other fakes call by name, under their real names. It counts, so that a test sees that it was
// called.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void* alloc_cpu(size_t size) __asm__("_ZN3c109alloc_cpuEm");
EXPORT void free_cpu(void* pointer) __asm__("_ZN3c108free_cpuEPv");
EXPORT void report(void*, int64_t, size_t, size_t, uint16_t) __asm__(
    "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

EXPORT int late_reports = 0;

void* alloc_cpu(size_t size) {
  void* pointer = NULL;
  return posix_memalign(&pointer, 64, size) == 0 ? pointer : NULL;
}

void free_cpu(void* pointer) {
  free(pointer);
}

void report(void* pointer, int64_t size, size_t allocated, size_t reserved, uint16_t device) {
  (void)pointer, (void)size, (void)allocated, (void)reserved, (void)device;
  ++late_reports;
}

// As at::empty and the storage's deleter: through the library's own PLT.
EXPORT void* late_cpu_tensor(size_t size) {
  return alloc_cpu(size);
}
EXPORT void late_cpu_delete(void* pointer) {
  free_cpu(pointer);
}
EXPORT int late_report_count(void) {
  return late_reports;
}
