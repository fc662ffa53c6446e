// SPDX-License-Identifier: Apache-2.0
//
// Events for counting the recorder's instructions: pairs of an allocation and its free in a loop,
// after as many uncounted ones. run.py builds it twice: as a program with its own fake of PyTorch's
// libc10.so (-DSTAND_IN makes that library), and as a library that Python calls, below a stack of
// Python functions.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <valgrind/callgrind.h>

enum { kUncounted = 400 };

void* alloc_cpu(size_t size) __asm__("_ZN3c109alloc_cpuEm");
void free_cpu(void* pointer) __asm__("_ZN3c108free_cpuEPv");
void report(void* pointer, int64_t size, size_t allocated, size_t reserved, uint16_t device) __asm__(
    "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

#ifdef STAND_IN

void* alloc_cpu(size_t size) {
  void* pointer = NULL;
  return posix_memalign(&pointer, 64, size) == 0 ? pointer : NULL;
}

void free_cpu(void* pointer) {
  free(pointer);
}

void report(void* pointer, int64_t size, size_t allocated, size_t reserved, uint16_t device) {
  (void)pointer, (void)size, (void)allocated, (void)reserved, (void)device;
}

#else

void counting_begins(void) {
  CALLGRIND_ZERO_STATS;
}

void counting_ends(const char* name) {
  CALLGRIND_DUMP_STATS_AT(name);
}

void instrumentation_begins(void) {
  CALLGRIND_START_INSTRUMENTATION;
}

// A caching allocator's blocks: addresses of some MiB, in no order, and sizes of all kinds.
enum { kBlocks = 64 };

static void* Block(int i) {
  return (void*)(uintptr_t)(0x7f2a40000000u + (uint64_t)(i * 37 % kBlocks) * 0x31400);
}

static int64_t Size(int i) {
  return (int64_t)512 << (i * 5 % 13);
}

static void Blocks(int count) {
  enum { kDevice = 1 };  // CUDA, the first
  for (int i = 0; i < count; ++i) {
    report(Block(i), Size(i), 1 << 20, 2 << 20, kDevice);
    report(Block(i), -Size(i), 1 << 20, 2 << 20, kDevice);
  }
}

static void CpuTensors(int count) {
  for (int i = 0; i < count; ++i) free_cpu(alloc_cpu((size_t)Size(i)));
}

static int (*g_alloc)(uint64_t*, size_t);
static int (*g_free)(uint64_t);
static int (*g_alloc_async)(uint64_t*, size_t, void*);
static int (*g_free_async)(uint64_t, void*);
static int (*g_launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                       void**);
static void* g_function;

static void DriverMemory(int count) {
  uint64_t address;
  for (int i = 0; i < count; ++i) {
    g_alloc(&address, 4 << 20);
    g_free(address);
  }
}

static void DriverStreamOrdered(int count) {
  uint64_t address;
  for (int i = 0; i < count; ++i) {
    g_alloc_async(&address, 1 << 20, NULL);
    g_free_async(address, NULL);
  }
}

// One event in each turn: two launches count as a pair.
static void Launches(int count) {
  for (int i = 0; i < 2 * count; ++i) g_launch(g_function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static void* Need(void* library, const char* name) {
  void* const symbol = dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "events: the driver has no %s\n", name);
    exit(3);
  }
  return symbol;
}

static void LoadDriver(void) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "events: %s\n", dlerror());
    exit(3);
  }
  void* context = NULL;
  void* module = NULL;
  int (*init)(unsigned) = Need(library, "cuInit");
  int (*retain)(void**, int) = Need(library, "cuDevicePrimaryCtxRetain");
  int (*set_current)(void*) = Need(library, "cuCtxSetCurrent");
  int (*load)(void**, const void*) = Need(library, "cuModuleLoadData");
  int (*function)(void**, void*, const char*) = Need(library, "cuModuleGetFunction");
  g_alloc = Need(library, "cuMemAlloc_v2");
  g_free = Need(library, "cuMemFree_v2");
  g_alloc_async = Need(library, "cuMemAllocAsync");
  g_free_async = Need(library, "cuMemFreeAsync");
  g_launch = Need(library, "cuLaunchKernel");
  if (init(0) != 0 || retain(&context, 0) != 0 || set_current(context) != 0 ||
      load(&module, "FAKE kernel=kernel:0:0") != 0 || function(&g_function, module, "kernel") != 0) {
    fprintf(stderr, "events: the stand-in driver refused\n");
    exit(3);
  }
}

static void Count(void (*pairs)(int), int count, const char* name) {
  pairs(kUncounted);
  counting_begins();
  pairs(count);
  counting_ends(name);
}

void count_blocks(int count, const char* name) {
  Count(Blocks, count, name);
}

// The number of frames of the program in native stacks.
static __attribute__((noinline)) void AtDepth(int left, void (*pairs)(int), int count, const char* name) {
  if (left > 1)
    AtDepth(left - 1, pairs, count, name);
  else
    Count(pairs, count, name);
  __asm__ volatile("" ::: "memory");  // no tail call
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 1000;
  LoadDriver();
  instrumentation_begins();
  AtDepth(1, Blocks, count, "block, no stack");
  AtDepth(1, CpuTensors, count, "CPU tensor, no stack");
  AtDepth(10, DriverMemory, count, "cuMemAlloc, 10 native frames");
  AtDepth(10, DriverStreamOrdered, count, "cuMemAllocAsync, 10 native frames");
  AtDepth(10, Launches, count, "cuLaunchKernel, known function");
  return 0;
}

#endif
