/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A PJRT plugin for tests. It takes a pool on each of two devices from the CUDA driver, and
 * counts what it has given out of it. Its table has the places of version 0.115, as far as they
 * are needed. Environment:
 *
 *   FAKE_PJRT_BYTES   size of the table instead of 1144
 *   FAKE_PJRT_MAJOR   major version instead of 0
 *   FAKE_PJRT_SLACK   bytes that a program gets beyond its temporary memory
 *
 * Functions beside the table, which a real plugin does not have:
 */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { kFakeDevices = 2, kFakePoolBytes = 256 << 20, kFakeGranule = 256 };

/* A compiled program: `outputs` buffers of `output_bytes` on each of `devices`, in place of its
 * first `donated` arguments, with `temporary_bytes` until it is finished, or the next program with
 * any begins on the device. */
typedef struct {
  const char* name;
  size_t outputs;
  size_t output_bytes;
  size_t donated;
  int64_t temporary_bytes;
  size_t devices;
  const char* const* paths; /* names of its arguments, ending with null; null: none */
} FakeProgram;

typedef struct {
  void* (*load)(const FakeProgram* program); /* a PJRT_LoadedExecutable */
  void* (*device)(int ordinal);              /* a PJRT_Device */
  void* (*host_memory)(int ordinal);         /* a PJRT_Memory */
  void (*finish)(void);                      /* all executions end */
  /* What is given out of the pool: rounded bytes, buffers, temporary bytes. */
  void (*count)(int ordinal, uint64_t* bytes, uint64_t* buffers, uint64_t* temporary);
  uint64_t (*errors)(void);                 /* that were not destroyed */
  void (*use)(int ordinal, uint64_t bytes); /* so much beside all buffers */
} FakePlugin;

const FakePlugin* FakePluginOf(void);

#ifdef __cplusplus
}
#endif
