// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "fake_plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kHeaderWords = 5, kEntries = 138, kMostBytes = 8 * (kHeaderWords + kEntries) };

typedef uint64_t Word;
typedef void* Function(Word* arguments);

typedef struct Memory {
  int ordinal;
  bool is_host;
  struct Memory* self;
} Memory;

typedef struct {
  int ordinal;
  Memory memory, host;
  _Atomic uint64_t bytes, buffers, temporary, beside, peak;
} Device;

typedef struct {
  uint64_t size;
  Memory* memory;
  _Atomic bool is_deleted;
  bool is_view;
} Buffer;

typedef struct {
  FakeProgram program;
  char name[256];
} Executable;

typedef void Callback(void* error, void* data);
typedef struct Event {
  bool is_ready, is_destroyed;
  Callback* callbacks[4];
  void* data[4];
  size_t callback_count;
  size_t temporary;  // on the device
  Device* device;
  struct Event* next;
} Event;

typedef struct {
  char message[64];
} Error;

static Device g_devices[kFakeDevices];
static _Atomic uint64_t g_errors;
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static Event* g_running;
static Word g_table[kHeaderWords + kEntries];

static uint64_t Round(uint64_t bytes) {
  return (bytes + kFakeGranule - 1) / kFakeGranule * kFakeGranule;
}

static void* Fail(const char* message) {
  Error* const error = calloc(1, sizeof *error);
  snprintf(error->message, sizeof error->message, "%s", message);
  ++g_errors;
  return error;
}

// As the real ones: a caller with an older structure is an error.
#define NEEDS(words)                \
  if (arguments[0] < (words)*8 - 7) \
  return Fail("unexpected size")

static void* At(const Word* arguments, size_t word) {
  return (void*)arguments[word];
}

static Buffer* NewBuffer(uint64_t size, Memory* memory) {
  Device* const device = &g_devices[memory->ordinal];
  if (!memory->is_host && device->bytes + device->temporary + Round(size) > kFakePoolBytes)
    return NULL;
  Buffer* const buffer = aligned_alloc(16, (sizeof *buffer + 15) / 16 * 16);
  memset(buffer, 0, sizeof *buffer);
  buffer->size = size;
  buffer->memory = memory;
  if (!memory->is_host) {
    device->bytes += Round(size);
    device->buffers += size != 0;
  }
  return buffer;
}

static void GiveBack(Buffer* buffer) {
  if (atomic_exchange(&buffer->is_deleted, true) || buffer->is_view || buffer->memory->is_host)
    return;
  Device* const device = &g_devices[buffer->memory->ordinal];
  device->bytes -= Round(buffer->size);
  device->buffers -= buffer->size != 0;
}

static uint64_t BytesOf(const int64_t* dims, size_t count) {
  uint64_t bytes = 4;
  for (size_t i = 0; i < count; ++i)
    bytes *= (uint64_t)dims[i];
  return bytes;
}

static void* Made(Word* arguments, size_t out, Buffer* buffer) {
  if (buffer == NULL)
    return Fail("RESOURCE_EXHAUSTED");
  arguments[out] = (Word)buffer;
  return NULL;
}

static Memory* MemoryOf(const Word* arguments, size_t device, size_t memory) {
  return At(arguments, memory) != NULL ? At(arguments, memory)
                                       : &((Device*)At(arguments, device))->memory;
}

static void* ErrorDestroy(Word* arguments) {
  if (At(arguments, 2) != NULL)
    --g_errors;
  free(At(arguments, 2));
  return NULL;
}

static void* ErrorMessage(Word* arguments) {
  Error* const error = At(arguments, 2);
  arguments[3] = (Word)error->message;
  arguments[4] = strlen(error->message);
  return NULL;
}

static void* BufferFromHost(Word* arguments) {
  NEEDS(15);
  return Made(arguments, 14,
              NewBuffer(BytesOf(At(arguments, 5), arguments[6]), MemoryOf(arguments, 10, 11)));
}

static void* Uninitialized(Word* arguments) {
  NEEDS(10);
  return Made(arguments, 9,
              NewBuffer(BytesOf(At(arguments, 3), arguments[4]), MemoryOf(arguments, 7, 8)));
}

// The manager is the size of its buffers.
static void* RetrieveBuffer(Word* arguments) {
  NEEDS(5);
  return Made(arguments, 4, NewBuffer((uint64_t)arguments[2], &g_devices[0].memory));
}

static void* View(Word* arguments) {
  NEEDS(13);
  Buffer* const buffer = aligned_alloc(16, (sizeof *buffer + 15) / 16 * 16);
  memset(buffer, 0, sizeof *buffer);
  buffer->size = BytesOf(At(arguments, 4), arguments[5]);
  buffer->memory = &((Device*)At(arguments, 8))->memory;
  buffer->is_view = true;
  return Made(arguments, 12, buffer);
}

static void* CopyToDevice(Word* arguments) {
  NEEDS(5);
  return Made(arguments, 4,
              NewBuffer(((Buffer*)At(arguments, 2))->size, &((Device*)At(arguments, 3))->memory));
}

static void* CopyToMemory(Word* arguments) {
  NEEDS(5);
  return Made(arguments, 4, NewBuffer(((Buffer*)At(arguments, 2))->size, At(arguments, 3)));
}

static void* Donate(Word* arguments) {
  NEEDS(6);
  Buffer* const old = At(arguments, 2);
  if (old->is_deleted)
    return Fail("donated twice");
  GiveBack(old);
  return Made(arguments, 5, NewBuffer(old->size, old->memory));
}

static void* BufferDelete(Word* arguments) {
  NEEDS(3);
  GiveBack(At(arguments, 2));
  return NULL;
}

static void* BufferDestroy(Word* arguments) {
  NEEDS(3);
  if (At(arguments, 2) != NULL)
    GiveBack(At(arguments, 2));
  free(At(arguments, 2));
  return NULL;
}

static void* BufferIsDeleted(Word* arguments) {
  NEEDS(4);
  *(bool*)&arguments[3] = ((Buffer*)At(arguments, 2))->is_deleted;
  return NULL;
}

static void* BufferSize(Word* arguments) {
  NEEDS(4);
  arguments[3] = ((Buffer*)At(arguments, 2))->size;
  return NULL;
}

static void* BufferDevice(Word* arguments) {
  NEEDS(4);
  arguments[3] = (Word)&g_devices[((Buffer*)At(arguments, 2))->memory->ordinal];
  return NULL;
}

static void* BufferMemory(Word* arguments) {
  NEEDS(4);
  arguments[3] = (Word)((Buffer*)At(arguments, 2))->memory;
  return NULL;
}

static void* DeviceHardwareId(Word* arguments) {
  NEEDS(4);
  *(int*)&arguments[3] = ((Device*)At(arguments, 2))->ordinal;
  return NULL;
}

// What a program gets beyond its temporary memory. XLA does not count it as in use any more when
// the execution returns.
static uint64_t TemporarySlack(void) {
  const char* const bytes = getenv("FAKE_PJRT_SLACK");
  return bytes != NULL ? (uint64_t)atoll(bytes) : 0;
}

static void* DeviceStats(Word* arguments) {
  NEEDS(24);
  const Device* const device = At(arguments, 2);
  arguments[3] = device->bytes + device->beside + (TemporarySlack() != 0 ? 0 : device->temporary);
  arguments[4] = device->peak;
  *(bool*)&arguments[5] = true;
  return NULL;
}

static void* MemoryKind(Word* arguments) {
  NEEDS(5);
  const char* const kind = ((Memory*)At(arguments, 2))->is_host ? "pinned_host" : "device";
  arguments[3] = (Word)kind;
  arguments[4] = strlen(kind);
  return NULL;
}

static void* MemoryDevices(Word* arguments) {
  NEEDS(5);
  static void* devices[kFakeDevices];
  const int ordinal = ((Memory*)At(arguments, 2))->ordinal;
  devices[ordinal] = &g_devices[ordinal];
  arguments[3] = (Word)&devices[ordinal];
  arguments[4] = 1;
  return NULL;
}

static void* GetExecutable(Word* arguments) {
  NEEDS(4);
  Executable* const copy = malloc(sizeof *copy);
  *copy = *(Executable*)At(arguments, 2);
  arguments[3] = (Word)copy;
  return NULL;
}

static void* Free(Word* arguments) {
  NEEDS(3);
  free(At(arguments, 2));
  return NULL;
}

static void* ExecutableName(Word* arguments) {
  NEEDS(5);
  arguments[3] = (Word)((Executable*)At(arguments, 2))->name;
  arguments[4] = strlen(((Executable*)At(arguments, 2))->name);
  return NULL;
}

static void* OutputCount(Word* arguments) {
  NEEDS(4);
  arguments[3] = ((Executable*)At(arguments, 2))->program.outputs;
  return NULL;
}

static void* MemoryStats(Word* arguments) {
  NEEDS(14);
  memset(&arguments[3], 0, 11 * 8);
  arguments[7] = (Word)((Executable*)At(arguments, 2))->program.temporary_bytes;
  return NULL;
}

// Protobuf, as xla/service/hlo.proto has it.
typedef struct {
  uint8_t bytes[16384];
  size_t size;
} Proto;

static void PutVarint(Proto* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out->bytes[out->size++] = (uint8_t)(value | 0x80);
  out->bytes[out->size++] = (uint8_t)value;
}

static void PutNumber(Proto* out, unsigned field, uint64_t value) {
  PutVarint(out, field << 3);
  PutVarint(out, value);
}

static void PutBytes(Proto* out, unsigned field, const void* bytes, size_t size) {
  PutVarint(out, field << 3 | 2);
  PutVarint(out, size);
  memcpy(&out->bytes[out->size], bytes, size);
  out->size += size;
}

// HloModuleProtoWithConfig: parameters with names, and results in place of the first ones.
static void WriteHlo(const FakeProgram* program, Proto* out) {
  static _Thread_local Proto entry, aliases, module, instruction, part;
  entry.size = aliases.size = module.size = 0;
  for (size_t i = 0; program->paths != NULL && program->paths[i] != NULL; ++i) {
    part.size = instruction.size = 0;
    PutBytes(&part, 2, program->paths[i], strlen(program->paths[i]));
    PutBytes(&instruction, 2, "parameter", 9);
    PutBytes(&instruction, 7, part.bytes, part.size);
    PutNumber(&instruction, 9, i);
    PutBytes(&entry, 2, instruction.bytes, instruction.size);
    if (i >= program->donated)
      continue;
    const uint8_t result = (uint8_t)i;
    part.size = 0;
    PutBytes(&part, 1, &result, 1);
    PutNumber(&part, 2, i);
    PutBytes(&aliases, 1, part.bytes, part.size);
  }
  PutNumber(&entry, 5, 1);
  PutBytes(&module, 3, entry.bytes, entry.size);
  PutNumber(&module, 6, 1);
  PutBytes(&module, 8, aliases.bytes, aliases.size);
  out->size = 0;
  PutBytes(out, 1, module.bytes, module.size);
}

static void* OptimizedProgram(Word* arguments) {
  NEEDS(4);
  static _Thread_local Proto hlo;
  Word* const program = At(arguments, 3);
  WriteHlo(&((Executable*)At(arguments, 2))->program, &hlo);
  if (program[2] != 0)
    memcpy((void*)program[2], hlo.bytes, hlo.size);
  program[3] = hlo.size;
  program[4] = (Word) "hlo_with_config";
  program[5] = strlen("hlo_with_config");
  return NULL;
}

static void* ExecutableDevices(Word* arguments) {
  NEEDS(5);
  static void* devices[kFakeDevices];
  for (int i = 0; i < kFakeDevices; ++i)
    devices[i] = &g_devices[i];
  arguments[3] = (Word)devices;
  arguments[4] = ((Executable*)At(arguments, 2))->program.devices;
  return NULL;
}

static Event* NewEvent(Device* device, size_t temporary) {
  Event* const event = calloc(1, sizeof *event);
  event->device = device;
  event->temporary = temporary;
  // As on a stream: the memory of the program before may be used by this one.
  if (temporary != 0) {
    device->temporary = Round(temporary) + TemporarySlack();
    const uint64_t used = device->bytes + device->beside + device->temporary;
    if (used > device->peak)
      device->peak = used;
  }
  event->is_ready = temporary == 0;
  if (!event->is_ready) {
    pthread_mutex_lock(&g_lock);
    event->next = g_running;
    g_running = event;
    pthread_mutex_unlock(&g_lock);
  }
  return event;
}

static _Thread_local Event* t_last;

static void* Execute(Word* arguments) {
  NEEDS(10);
  const Executable* const executable = At(arguments, 2);
  Buffer* const* const* const lists = At(arguments, 4);
  Buffer** const* const outputs = At(arguments, 7);
  Event** const events = At(arguments, 8);
  if (strcmp(executable->name, "jit_fails") == 0)
    return Fail("INTERNAL: it fails");
  Device* const given = At(arguments, 9);
  for (size_t d = 0; d < arguments[5]; ++d) {
    Device* const device = given != NULL ? given : &g_devices[d];
    for (size_t i = 0; i < executable->program.donated; ++i)
      GiveBack(lists[d][i]);
    for (size_t i = 0; i < executable->program.outputs; ++i)
      outputs[d][i] = NewBuffer(executable->program.output_bytes, &device->memory);
    t_last = NewEvent(device, (size_t)executable->program.temporary_bytes);
    if (events != NULL)
      events[d] = t_last;
  }
  return NULL;
}

// An output's event is that of the execution that made it: the thread's last.
static void* ReadyEvent(Word* arguments) {
  NEEDS(4);
  arguments[3] = (Word)t_last;
  return NULL;
}

static void* EventOnReady(Word* arguments) {
  NEEDS(5);
  Event* const event = At(arguments, 2);
  pthread_mutex_lock(&g_lock);
  const bool is_ready = event->is_ready;
  if (!is_ready) {
    event->callbacks[event->callback_count] = (Callback*)arguments[3];
    event->data[event->callback_count++] = At(arguments, 4);
  }
  pthread_mutex_unlock(&g_lock);
  if (is_ready)
    ((Callback*)arguments[3])(NULL, At(arguments, 4));
  return NULL;
}

// Freed when it is both destroyed and ready.
static void* EventDestroy(Word* arguments) {
  NEEDS(3);
  return NULL;
}

static void FinishAll(void) {
  pthread_mutex_lock(&g_lock);
  Event* event = g_running;
  g_running = NULL;
  for (Event* one = event; one != NULL; one = one->next)
    one->is_ready = true;
  pthread_mutex_unlock(&g_lock);
  for (; event != NULL; event = event->next) {
    event->device->temporary = 0;
    for (size_t i = 0; i < event->callback_count; ++i)
      event->callbacks[i](i == 1 ? Fail("of the event") : NULL, event->data[i]);
  }
}

static void* NotThere(Word* arguments) {
  (void)arguments;
  return Fail("UNIMPLEMENTED");
}

static void* Load(const FakeProgram* program) {
  Executable* const executable = calloc(1, sizeof *executable);
  executable->program = *program;
  snprintf(executable->name, sizeof executable->name, "%s", program->name);
  return executable;
}

static void* DeviceAt(int ordinal) {
  return &g_devices[ordinal];
}

static void* HostMemoryAt(int ordinal) {
  return &g_devices[ordinal].host;
}

static void Count(int ordinal, uint64_t* bytes, uint64_t* buffers, uint64_t* temporary) {
  *bytes = g_devices[ordinal].bytes;
  *buffers = g_devices[ordinal].buffers;
  *temporary = g_devices[ordinal].temporary;
}

static void Use(int ordinal, uint64_t bytes) {
  g_devices[ordinal].beside = bytes;
}

static uint64_t Errors(void) {
  return g_errors;
}

static uint64_t g_pools[kFakeDevices];

static void TakePools(void) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL)
    return;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*retain)(void**, int) = (int (*)(void**, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  int (*make_current)(void*) = (int (*)(void*))dlsym(driver, "cuCtxSetCurrent");
  int (*alloc)(uint64_t*, size_t) = (int (*)(uint64_t*, size_t))dlsym(driver, "cuMemAlloc_v2");
  init(0);
  for (int i = 0; i < kFakeDevices; ++i) {
    void* context = NULL;
    if (retain(&context, i) != 0 || make_current(context) != 0 ||
        alloc(&g_pools[i], kFakePoolBytes) != 0)
      abort();
  }
}

// Its pools go back to the driver.
static void* ClientDestroy(Word* arguments) {
  NEEDS(3);
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*free_memory)(uint64_t) =
      driver != NULL ? (int (*)(uint64_t))dlsym(driver, "cuMemFree_v2") : NULL;
  for (int i = 0; i < kFakeDevices && free_memory != NULL; ++i) {
    free_memory(g_pools[i]);
    g_devices[i].beside = 0;
  }
  return NULL;
}

__attribute__((visibility("default"))) const FakePlugin* FakePluginOf(void) {
  static const FakePlugin plugin = {Load, DeviceAt, HostMemoryAt, FinishAll, Count, Errors, Use};
  return &plugin;
}

__attribute__((visibility("default"))) void* GetPjrtApi(void) {
  if (g_table[0] != 0)
    return g_table;
  static const struct {
    int place;
    Function* function;
  } kFunctions[] = {
      {0, ErrorDestroy},
      {1, ErrorMessage},
      {5, EventDestroy},
      {9, EventOnReady},
      {11, ClientDestroy},
      {22, BufferFromHost},
      {31, DeviceHardwareId},
      {34, DeviceStats},
      {36, MemoryKind},
      {39, MemoryDevices},
      {40, Free},
      {41, ExecutableName},
      {44, OutputCount},
      {50, Free},
      {51, GetExecutable},
      {52, ExecutableDevices},
      {55, Execute},
      {58, BufferDestroy},
      {64, BufferSize},
      {65, BufferDevice},
      {66, BufferMemory},
      {67, BufferDelete},
      {68, BufferIsDeleted},
      {69, CopyToDevice},
      {72, ReadyEvent},
      {92, CopyToMemory},
      {93, View},
      {96, MemoryStats},
      {104, RetrieveBuffer},
      {112, Uninitialized},
      {125, Donate},
      {48, OptimizedProgram},
  };
  const char* const bytes = getenv("FAKE_PJRT_BYTES");
  const char* const major = getenv("FAKE_PJRT_MAJOR");
  for (size_t i = 0; i < kEntries; ++i)
    g_table[kHeaderWords + i] = (Word)NotThere;
  for (size_t i = 0; i < sizeof kFunctions / sizeof kFunctions[0]; ++i)
    g_table[kHeaderWords + kFunctions[i].place] = (Word)kFunctions[i].function;
  const int version[2] = {major != NULL ? atoi(major) : 0, 115};
  memcpy(&g_table[4], version, sizeof version);
  for (int i = 0; i < kFakeDevices; ++i) {
    g_devices[i].ordinal = i;
    g_devices[i].memory = (Memory){.ordinal = i};
    g_devices[i].host = (Memory){.ordinal = i, .is_host = true};
  }
  TakePools();
  g_table[0] = bytes != NULL ? (Word)atoi(bytes) : kMostBytes;
  return g_table;
}
