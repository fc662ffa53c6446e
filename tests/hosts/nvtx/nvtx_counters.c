// SPDX-License-Identifier: Apache-2.0
//
// A program with NVTX counters, most of them of bytes. Prints which of them got an id: "none" for
// all of them without the probe.
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCounters.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <nvtx3/nvToolsExtSemanticsCounters.h>
#include <nvtx3/nvToolsExtSemanticsTime.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void StartDriver(void) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(3);
  }
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
  int (*retain)(void**, int) = (int (*)(void**, int))dlsym(library, "cuDevicePrimaryCtxRetain");
  int (*set_current)(void*) = (int (*)(void*))dlsym(library, "cuCtxSetCurrent");
  int (*alloc)(unsigned long long*, size_t) =
      (int (*)(unsigned long long*, size_t))dlsym(library, "cuMemAlloc_v2");
  void* context;
  unsigned long long address;
  if (init(0) != 0 || retain(&context, 0) != 0 || set_current(context) != 0 ||
      alloc(&address, 1 << 20) != 0)
    exit(3);
}

static nvtxSemanticsCounter_t Semantics(const char* unit) {
  nvtxSemanticsCounter_t semantics;
  memset(&semantics, 0, sizeof semantics);
  semantics.header.structSize = sizeof semantics;
  semantics.header.semanticId = NVTX_SEMANTIC_ID_COUNTERS_V1;
  semantics.header.version = NVTX_COUNTER_SEMANTIC_VERSION;
  semantics.flags = NVTX_COUNTER_FLAG_VALUETYPE_ABSOLUTE;
  semantics.unit = unit;
  semantics.unitScaleNumerator = semantics.unitScaleDenominator = 1;
  return semantics;
}

static nvtxCounterAttr_t Attributes(const char* name, const nvtxSemanticsCounter_t* semantics) {
  nvtxCounterAttr_t attributes;
  memset(&attributes, 0, sizeof attributes);
  attributes.structSize = sizeof attributes;
  attributes.schemaId = NVTX_PAYLOAD_ENTRY_TYPE_INT64;
  attributes.name = name;
  attributes.semantics = semantics != NULL ? &semantics->header : NULL;
  return attributes;
}

static uint64_t Register(nvtxDomainHandle_t domain, const nvtxCounterAttr_t* attributes) {
  const uint64_t id = nvtxCounterRegister(domain, attributes);
  printf("%s: %s\n", attributes->name,
         id == NVTX_COUNTER_ID_NONE            ? "none"
         : id >= NVTX_COUNTER_ID_DYNAMIC_START ? "dynamic"
                                               : "static");
  return id;
}

static uint64_t Plain(const char* name, const char* unit) {
  const nvtxSemanticsCounter_t semantics = Semantics(unit);
  const nvtxCounterAttr_t attributes = Attributes(name, unit != NULL ? &semantics : NULL);
  return Register(NULL, &attributes);
}

static void Values(void) {
  const uint64_t overall = Plain("overall live", "bytes");
  nvtxCounterSampleInt64(NULL, overall, 0);
  nvtxCounterSampleInt64(NULL, overall, 3000000000);
  nvtxCounterSampleInt64(NULL, overall, 3000000000);
  nvtxCounterSampleNoValue(NULL, overall, NVTX_COUNTER_SAMPLE_UNCHANGED);
  nvtxCounterSampleNoValue(NULL, overall, NVTX_COUNTER_SAMPLE_UNAVAILABLE);
  nvtxCounterSampleInt64(NULL, overall, 100);
  nvtxCounterSampleNoValue(NULL, overall, NVTX_COUNTER_SAMPLE_ZERO);
  nvtxCounterSampleFloat64(NULL, Plain("in KiB", "KiB"), 1.5);
  nvtxCounterSampleFloat64(NULL, Plain("not a number", "B"), 0.0 / 0.0 * (double)overall);
  nvtxSemanticsCounter_t semantics = Semantics("Bytes");
  semantics.unitScaleNumerator = 512;
  semantics.unitScaleDenominator = 2;
  nvtxCounterAttr_t attributes = Attributes("scaled", &semantics);
  nvtxCounterSampleInt64(NULL, Register(NULL, &attributes), 3);
  semantics = Semantics("bytes");
  semantics.flags = NVTX_COUNTER_FLAG_VALUETYPE_DELTA;
  attributes = Attributes("deltas", &semantics);
  const uint64_t deltas = Register(NULL, &attributes);
  nvtxCounterSampleInt64(NULL, deltas, 100);
  nvtxCounterSampleInt64(NULL, deltas, 50);
  nvtxCounterSampleInt64(NULL, deltas, -30);
  const uint64_t unit_in_name = Plain("bytes in use", NULL);
  nvtxCounterSampleInt64(NULL, unit_in_name, 7);
}

static uint64_t Scope(const char* path, uint64_t parent, uint64_t id) {
  const nvtxScopeAttr_t scope = {sizeof scope, path, parent, id};
  return nvtxScopeRegister(NULL, &scope);
}

static void Scopes(void) {
  const uint64_t query = Scope("/Velox GPU memory/query 1", NVTX_SCOPE_ROOT, NVTX_SCOPE_NONE);
  const uint64_t device = Scope("GPU[CUDAID:0]", query, NVTX_SCOPE_ID_STATIC_START + 3);
  nvtxSemanticsCounter_t semantics = Semantics("bytes");
  nvtxSemanticsTime_t time;
  memset(&time, 0, sizeof time);
  time.header.structSize = sizeof time;
  time.header.semanticId = NVTX_SEMANTIC_ID_TIME_V1;
  time.header.next = &semantics.header;  // as Python's package has it
  nvtxCounterAttr_t attributes = Attributes("op3 CudfFilter d0 #7", NULL);
  attributes.semantics = &time.header;
  attributes.scopeId = query;
  nvtxCounterSampleInt64(NULL, Register(NULL, &attributes), 4096);
  attributes.name = "pool";
  attributes.scopeId = device;
  nvtxCounterSampleInt64(NULL, Register(NULL, &attributes), 8192);
  const nvtxDomainHandle_t mine = nvtxDomainCreateA("mine");
  attributes.name = "cache";
  attributes.counterId = NVTX_COUNTER_ID_STATIC_START + 5;
  const uint64_t cache = Register(mine, &attributes);
  nvtxCounterSampleInt64(mine, cache, 50);
  nvtxCounterSampleInt64(NULL, cache, 60);  // no counter of that domain
}

static void OtherUnits(void) {
  nvtxCounterSampleFloat64(NULL, Plain("temperature", "C"), 50);
  nvtxCounterSampleInt64(NULL, Plain("traffic", "bytes/s"), 51);
  nvtxCounterSampleInt64(NULL, Plain("bytes per second", NULL), 52);
  nvtxCounterSampleInt64(NULL, Plain("steps", NULL), 53);
  nvtxCounterSampleInt64(NULL, 12345, 54);
}

// What is beyond the size that a structure states is not there.
static void OtherSizes(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char* const end =
      (char*)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) +
      page;
  if (mprotect(end, page, PROT_NONE) != 0)
    exit(3);
  nvtxSemanticsCounter_t semantics = Semantics("bytes");
  nvtxCounterAttr_t attributes = Attributes("short", &semantics);
  attributes.structSize = offsetof(nvtxCounterAttr_t, semantics);
  memcpy(end - attributes.structSize, &attributes, attributes.structSize);
  Register(NULL, (const nvtxCounterAttr_t*)(end - attributes.structSize));
  semantics.header.structSize = sizeof semantics.header;
  memcpy(end - sizeof semantics.header, &semantics, sizeof semantics.header);
  attributes = Attributes("short semantics", NULL);
  attributes.semantics = (const nvtxSemanticsHeader_t*)(end - sizeof semantics.header);
  Register(NULL, &attributes);
  semantics = Semantics("bytes");
  semantics.header.version = NVTX_COUNTER_SEMANTIC_VERSION + 1;
  attributes = Attributes("other version", &semantics);
  Register(NULL, &attributes);
  const nvtxScopeAttr_t scope = {sizeof scope - 1, "/short", NVTX_SCOPE_ROOT, NVTX_SCOPE_NONE};
  printf("scope: %s\n", nvtxScopeRegister(NULL, &scope) == NVTX_SCOPE_NONE ? "none" : "some");
}

static void Often(void) {
  const uint64_t counter = Plain("often", "bytes");
  for (int64_t i = 1; i <= 100000; ++i)
    nvtxCounterSampleInt64(NULL, counter, i);
}

static void TooMany(void) {
  const nvtxSemanticsCounter_t semantics = Semantics("bytes");
  char name[32];
  for (int i = 0; i < 7000; ++i) {
    snprintf(name, sizeof name, "counter %d", i);
    const nvtxCounterAttr_t attributes = Attributes(name, &semantics);
    nvtxCounterSampleInt64(NULL, nvtxCounterRegister(NULL, &attributes), i + 1);
  }
}

// A child's file has the values that it says itself.
static void Fork(void) {
  const uint64_t counter = Plain("forked", "bytes");
  nvtxCounterSampleInt64(NULL, counter, 11);
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    nvtxCounterSampleInt64(NULL, counter, 11);
    exit(0);
  }
  int status;
  if (waitpid(child, &status, 0) != child || status != 0)
    exit(3);
}

int main(int argc, char** argv) {
  StartDriver();
  const char* const mode = argc > 1 ? argv[1] : "";
  if (strcmp(mode, "often") == 0) {
    Often();
  } else if (strcmp(mode, "many") == 0) {
    TooMany();
  } else if (strcmp(mode, "fork") == 0) {
    Fork();
  } else {
    Values();
    Scopes();
    OtherUnits();
    OtherSizes();
  }
  return 0;
}
