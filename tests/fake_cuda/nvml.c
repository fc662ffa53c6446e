/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in libnvidia-ml.so.1: the calls that vramscope makes, answered from the stand-in driver's
 * books (books.h), so that the two agree as they do on a machine with a GPU.
 *
 *   VRAMSCOPE_FAKE_NVML_ERROR=N   nvmlInit_v2 returns N (9: driver not loaded, 18: version
 * mismatch)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "books.h"

#define EXPORT __attribute__((visibility("default")))

enum {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kInsufficientSize = 7,
  kUnknown = 999,
  kArgumentVersionMismatch = 25,
};

typedef struct MemoryV2 {
  unsigned version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
} MemoryV2;

typedef struct ProcessInfoV2 {
  unsigned pid;
  unsigned long long used_gpu_memory;
  unsigned gpu_instance_id;
  unsigned compute_instance_id;
} ProcessInfoV2;

static FakeBooks* g_books;

EXPORT int nvmlInit_v2(void) {
  const char* const error = getenv("VRAMSCOPE_FAKE_NVML_ERROR");
  if (error != NULL && atoi(error) != 0)
    return atoi(error);
  if (g_books == NULL)
    g_books = FakeBooksOpen();
  return g_books != NULL ? kSuccess : kUnknown;
}

EXPORT int nvmlShutdown(void) {
  return g_books != NULL ? kSuccess : kUninitialized;
}

EXPORT const char* nvmlErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kInsufficientSize:
      return "Insufficient Size";
    case 9:
      return "Driver Not Loaded";
    case 18:
      return "Driver/library version mismatch";
    default:
      return "Unknown Error";
  }
}

EXPORT int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  if (g_books == NULL)
    return kUninitialized;
  snprintf(version, length, "580.0.0-stand-in");
  return kSuccess;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  if (g_books == NULL)
    return kUninitialized;
  *count = g_books->device_count;
  return kSuccess;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (g_books == NULL)
    return kUninitialized;
  if (index >= g_books->device_count)
    return kInvalidArgument;
  *device = &g_books->devices[index];
  return kSuccess;
}

static int CopyText(const char* text, char* out, unsigned length) {
  if (strlen(text) >= length)
    return kInsufficientSize;
  strcpy(out, text);
  return kSuccess;
}

EXPORT int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  return CopyText(((const FakeDevice*)device)->uuid, uuid, length);
}

EXPORT int nvmlDeviceGetName(void* device, char* name, unsigned length) {
  return CopyText(((const FakeDevice*)device)->name, name, length);
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(void* device, MemoryV2* memory) {
  const FakeDevice* const books = (const FakeDevice*)device;
  if (memory->version != (sizeof *memory | (2u << 24)))
    return kArgumentVersionMismatch;
  memory->total = books->total_bytes;
  memory->reserved = books->reserved_bytes;
  memory->used = FakeBooksDeviceUsed(books);
  memory->free = memory->total - memory->reserved - memory->used;
  return kSuccess;
}

/* For tests that wait for a list of the first device: how often one was asked for. */
EXPORT unsigned FakeProcessLists(void) {
  return g_books == NULL ? 0
                         : __atomic_load_n(&g_books->devices[0].process_lists, __ATOMIC_ACQUIRE);
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void* device,
                                                   unsigned* count,
                                                   ProcessInfoV2* processes) {
  FakeDevice* const books = (FakeDevice*)device;
  __atomic_add_fetch(&books->process_lists, 1u, __ATOMIC_ACQ_REL);
  unsigned found = 0;
  for (unsigned i = 0; i < FAKE_MAX_PROCESSES; ++i) {
    const FakeProcess* const row = &books->processes[i];
    const uint32_t pid = __atomic_load_n(&row->pid, __ATOMIC_ACQUIRE);
    if (!FakeProcessIsAlive(pid) || !__atomic_load_n(&row->has_context, __ATOMIC_RELAXED))
      continue;
    if (found < *count && processes != NULL) {
      memset(&processes[found], 0, sizeof processes[found]);
      processes[found].pid = pid;
      processes[found].used_gpu_memory =
          (unsigned long long)__atomic_load_n(&row->process_bytes, __ATOMIC_RELAXED);
      processes[found].gpu_instance_id = ~0u;
      processes[found].compute_instance_id = ~0u;
    }
    ++found;
  }
  const int result = found > *count ? kInsufficientSize : kSuccess;
  *count = found;
  return result;
}
