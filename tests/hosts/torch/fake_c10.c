// SPDX-License-Identifier: Apache-2.0
//
// A fake libc10.so: the functions through which PyTorch allocates CPU tensors and reports failures,
// under their real names, so that C programs are recorded like PyTorch. It goes through its
// own PLT, as the real library does.
#include <stdint.h>
#include <stdlib.h>

__attribute__((visibility("default"))) void* alloc_cpu(size_t size) __asm__("_ZN3c109alloc_cpuEm");
__attribute__((visibility("default"))) void free_cpu(void* pointer) __asm__("_ZN3c108free_cpuEPv");

void* alloc_cpu(size_t size) {
  void* pointer = NULL;
  return posix_memalign(&pointer, 64, size) == 0 ? pointer : NULL;
}

void free_cpu(void* pointer) {
  free(pointer);
}

// What the caching allocator says before it raises; it may be said inside of a signal handler here.
__attribute__((visibility("default"))) void give_up(
    int64_t wanted,
    size_t allocated,
    size_t reserved,
    uint16_t device) __asm__("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
void give_up(int64_t wanted, size_t allocated, size_t reserved, uint16_t device) {
  (void)wanted, (void)allocated, (void)reserved, (void)device;
}
