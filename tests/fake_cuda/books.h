// SPDX-License-Identifier: Apache-2.0
#pragma once

/* The books that the stand-in driver and the stand-in NVML share, so that cuMemGetInfo and NVML
 * agree as they do on a machine with a GPU. One file, named by VRAMSCOPE_FAKE_BOOKS, mapped by
 * every process; the first one makes it. C and C++.
 *
 *   process_bytes   what NVML's per-process figure says
 *   device_bytes    what the same process adds to the device's figure: process_bytes and what the
 *                   kernel driver takes for it (3.25 MiB at cuInit, 5.56 MiB a context)
 *
 * A process that was killed leaves its slot behind; readers skip slots of processes that are gone.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FAKE_BOOKS_MAGIC 0x3153424bu
#define FAKE_MAX_DEVICES 8
#define FAKE_MAX_PROCESSES 64
#define FAKE_MIB (1024ull * 1024ull)
/* As an H200 says: nvmlMemory_v2 total and reserved. */
#define FAKE_TOTAL_BYTES (143771ull * FAKE_MIB)
#define FAKE_RESERVED_BYTES 644990566ull

typedef struct FakeProcess {
  uint32_t pid; /* 0: free */
  uint32_t has_context;
  int64_t process_bytes;
  int64_t device_bytes;
} FakeProcess;

/* Memory that several processes hold: it is the machine's as long as one of them lives, and in no
 * process's device_bytes. */
#define FAKE_MAX_SHARED 64
#define FAKE_MAX_HOLDERS 8
typedef struct FakeShared {
  uint64_t bytes; /* 0: free */
  uint64_t nonce; /* of this one, among all that stood in this place */
  uint32_t holders[FAKE_MAX_HOLDERS];
} FakeShared;

typedef struct FakeDevice {
  uint64_t total_bytes;
  uint64_t reserved_bytes;
  char name[64];
  char uuid[48]; /* "GPU-..." as NVML writes it */
  uint8_t uuid_bytes[16];
  uint32_t process_lists; /* how often NVML's list of processes was asked for */
  uint32_t padding;
  FakeProcess processes[FAKE_MAX_PROCESSES];
  FakeShared shared[FAKE_MAX_SHARED];
} FakeDevice;

/* A process as the checkpoint calls see it, from its cuInit on. */
enum { FAKE_RUNNING = 0, FAKE_LOCKED = 1, FAKE_CHECKPOINTED = 2, FAKE_FAILED = 3 };
typedef struct FakeCheckpoint {
  uint32_t pid; /* 0: free */
  uint32_t state;
  uint32_t calls; /* under way; while the state is another than running, new ones wait */
  uint32_t padding;
  /* Of each device, while it is checkpointed. */
  FakeProcess rows[FAKE_MAX_DEVICES];
} FakeCheckpoint;

typedef struct FakeBooks {
  uint32_t magic; /* stored last, when the rest is filled in */
  uint32_t making;
  uint32_t device_count; /* VRAMSCOPE_FAKE_DEVICES, default 1 */
  uint32_t padding;
  FakeDevice devices[FAKE_MAX_DEVICES];
  FakeCheckpoint checkpoints[FAKE_MAX_PROCESSES];
} FakeBooks;

/* tests/e2e/fake_books.py reads these of the first device from the file. */
#define FAKE_PROCESS_LISTS_AT 160
#define FAKE_PROCESSES_AT 168
#ifdef __cplusplus
#define FAKE_ASSERT static_assert
#else
#define FAKE_ASSERT _Static_assert
#endif
FAKE_ASSERT(offsetof(FakeBooks, devices) + offsetof(FakeDevice, process_lists) ==
                FAKE_PROCESS_LISTS_AT,
            "change FAKE_PROCESS_LISTS_AT in fake_books.py too");
FAKE_ASSERT(offsetof(FakeBooks, devices) + offsetof(FakeDevice, processes) == FAKE_PROCESSES_AT,
            "change FAKE_PROCESSES_AT in fake_books.py too");
FAKE_ASSERT(sizeof(FakeProcess) == 24, "change FAKE_PROCESS in fake_books.py too");

static inline int FakeProcessIsAlive(uint32_t pid) {
  return pid != 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

static inline void FakeBooksFill(FakeBooks* books) {
  static const char kHex[] = "0123456789abcdef";
  const char* const count = getenv("VRAMSCOPE_FAKE_DEVICES");
  const char* const total_mib = getenv("VRAMSCOPE_FAKE_TOTAL_MIB");
  unsigned devices = count != NULL ? (unsigned)strtoul(count, NULL, 10) : 1;
  if (devices > FAKE_MAX_DEVICES)
    devices = FAKE_MAX_DEVICES;
  books->device_count = devices;
  for (unsigned i = 0; i < FAKE_MAX_DEVICES; ++i) {
    FakeDevice* const device = &books->devices[i];
    device->total_bytes =
        total_mib != NULL ? strtoull(total_mib, NULL, 10) * FAKE_MIB : FAKE_TOTAL_BYTES;
    device->reserved_bytes = FAKE_RESERVED_BYTES;
    strcpy(device->name, "Stand-in H200");
    for (unsigned b = 0; b < 16; ++b) {
      device->uuid_bytes[b] = (uint8_t)(b == 15 ? i : 0xa0 + b);
    }
    char* out = device->uuid;
    memcpy(out, "GPU-", 4);
    out += 4;
    for (unsigned b = 0; b < 16; ++b) {
      if (b == 4 || b == 6 || b == 8 || b == 10)
        *out++ = '-';
      *out++ = kHex[device->uuid_bytes[b] >> 4];
      *out++ = kHex[device->uuid_bytes[b] & 15];
    }
    *out = '\0';
  }
}

/* The books of this machine, or books of this process alone where VRAMSCOPE_FAKE_BOOKS is not set.
 * NULL when the file cannot be mapped. Call it once and keep the answer. */
static inline FakeBooks* FakeBooksOpen(void) {
  const char* const path = getenv("VRAMSCOPE_FAKE_BOOKS");
  FakeBooks* books;
  if (path == NULL || path[0] == '\0') {
    books = (FakeBooks*)mmap(NULL, sizeof(FakeBooks), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  } else {
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
      return NULL;
    if (ftruncate(fd, (off_t)sizeof(FakeBooks)) != 0) {
      close(fd);
      return NULL;
    }
    books = (FakeBooks*)mmap(NULL, sizeof(FakeBooks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
  }
  if (books == (FakeBooks*)MAP_FAILED)
    return NULL;
  uint32_t expected = 0;
  if (__atomic_compare_exchange_n(&books->making, &expected, 1u, 0, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE)) {
    FakeBooksFill(books);
    __atomic_store_n(&books->magic, FAKE_BOOKS_MAGIC, __ATOMIC_RELEASE);
  } else {
    while (__atomic_load_n(&books->magic, __ATOMIC_ACQUIRE) != FAKE_BOOKS_MAGIC)
      usleep(100);
  }
  return books;
}

/* This process's row of a device, made when there is none. NULL when all rows are taken. */
static inline FakeProcess* FakeBooksProcess(FakeDevice* device) {
  const uint32_t pid = (uint32_t)getpid();
  for (unsigned i = 0; i < FAKE_MAX_PROCESSES; ++i) {
    if (__atomic_load_n(&device->processes[i].pid, __ATOMIC_ACQUIRE) == pid) {
      return &device->processes[i];
    }
  }
  for (unsigned i = 0; i < FAKE_MAX_PROCESSES; ++i) {
    FakeProcess* const row = &device->processes[i];
    uint32_t owner = __atomic_load_n(&row->pid, __ATOMIC_ACQUIRE);
    if (FakeProcessIsAlive(owner))
      continue;
    if (__atomic_compare_exchange_n(&row->pid, &owner, pid, 0, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED)) {
      __atomic_store_n(&row->has_context, 0u, __ATOMIC_RELAXED);
      __atomic_store_n(&row->process_bytes, 0, __ATOMIC_RELAXED);
      __atomic_store_n(&row->device_bytes, 0, __ATOMIC_RELAXED);
      return row;
    }
  }
  return NULL;
}

static inline int FakeSharedIsHeld(const FakeShared* shared) {
  if (__atomic_load_n(&shared->bytes, __ATOMIC_ACQUIRE) == 0)
    return 0;
  for (unsigned i = 0; i < FAKE_MAX_HOLDERS; ++i) {
    if (FakeProcessIsAlive(__atomic_load_n(&shared->holders[i], __ATOMIC_RELAXED)))
      return 1;
  }
  return 0;
}

/* What NVML's version 2 calls used: everything but the reserved bytes. */
static inline uint64_t FakeBooksDeviceUsed(const FakeDevice* device) {
  int64_t used = 0;
  for (unsigned i = 0; i < FAKE_MAX_PROCESSES; ++i) {
    const FakeProcess* const row = &device->processes[i];
    if (!FakeProcessIsAlive(__atomic_load_n(&row->pid, __ATOMIC_ACQUIRE)))
      continue;
    used += __atomic_load_n(&row->device_bytes, __ATOMIC_RELAXED);
  }
  for (unsigned i = 0; i < FAKE_MAX_SHARED; ++i) {
    if (FakeSharedIsHeld(&device->shared[i]))
      used += (int64_t)__atomic_load_n(&device->shared[i].bytes, __ATOMIC_RELAXED);
  }
  return (uint64_t)used;
}
