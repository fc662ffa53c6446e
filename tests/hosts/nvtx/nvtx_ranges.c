// SPDX-License-Identifier: Apache-2.0
//
// A program with NVTX ranges of every kind around allocations on the CUDA driver, found by their
// sizes. What NVTX answers goes to the output: it must be the same with and without the probe.
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <wchar.h>

void LibraryStep(void (*touch)(size_t), size_t kib);

static int (*g_alloc)(unsigned long long*, size_t);
static int (*g_free)(unsigned long long);
static int (*g_set_current)(void*);
static void* g_context;

static void Touch(size_t kib) {
  unsigned long long address = 0;
  if (g_alloc(&address, kib << 10) != 0 || g_free(address) != 0)
    exit(3);
}

static void* Symbol(void* library, const char* name) {
  void* const symbol = dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "no %s\n", name);
    exit(3);
  }
  return symbol;
}

static void StartDriver(void) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(3);
  }
  int (*init)(unsigned) = (int (*)(unsigned))Symbol(library, "cuInit");
  int (*retain)(void**, int) = (int (*)(void**, int))Symbol(library, "cuDevicePrimaryCtxRetain");
  g_set_current = (int (*)(void*))Symbol(library, "cuCtxSetCurrent");
  g_alloc = (int (*)(unsigned long long*, size_t))Symbol(library, "cuMemAlloc_v2");
  g_free = (int (*)(unsigned long long))Symbol(library, "cuMemFree_v2");
  if (init(0) != 0 || retain(&g_context, 0) != 0 || g_set_current(g_context) != 0)
    exit(3);
}

static nvtxEventAttributes_t Message(nvtxMessageType_t type, nvtxMessageValue_t value) {
  nvtxEventAttributes_t attributes;
  memset(&attributes, 0, sizeof attributes);
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = type;
  attributes.message = value;
  return attributes;
}

static void Narrow(void) {
  printf("%d", nvtxRangePushA("step"));
  Touch(1);
  char name[201];
  memset(name, 'n', 200);
  name[200] = '\0';
  nvtxRangePushA(name);
  Touch(2);
  printf(" %d", nvtxRangePop());
  nvtxRangePushW(L"Gr\u00f6\u00dfe \u4f60 \U0001f600");
  Touch(3);
  nvtxRangePop();
  printf(" %d\n", nvtxRangePop());
  Touch(4);
}

static void Wide(void) {
  wchar_t name[401];
  wmemset(name, L'\u20ac', 400);
  name[400] = L'\0';
  nvtxRangePushW(name);
  Touch(5);
  nvtxRangePop();
}

static void Domains(void) {
  nvtxDomainHandle_t mine = nvtxDomainCreateA("mine");
  nvtxDomainHandle_t other = nvtxDomainCreateW(L"other");
  nvtxMessageValue_t value;
  value.registered = nvtxDomainRegisterStringA(mine, "registered");
  const nvtxEventAttributes_t registered = Message(NVTX_MESSAGE_TYPE_REGISTERED, value);
  value.ascii = "plain";
  const nvtxEventAttributes_t plain = Message(NVTX_MESSAGE_TYPE_ASCII, value);
  nvtxDomainRangePushEx(mine, &registered);
  nvtxDomainRangePushEx(other, &plain);
  Touch(6);
  nvtxDomainRangePop(mine);
  Touch(7);
  nvtxDomainRangePop(mine);  // none is left there
  Touch(8);
  nvtxDomainRangePop(other);
  Touch(9);
  nvtxDomainDestroy(mine);
  nvtxDomainMarkEx(other, &plain);
}

// Ranges of the process: no scopes.
static void StartAndEnd(void) {
  const nvtxRangeId_t range = nvtxRangeStartA("of the process");
  Touch(10);
  nvtxRangeEnd(range);
  printf("%llu\n", (unsigned long long)range);
}

// The payload extension, and a library with a domain of its own that ends its ranges with it.
static void Payloads(void) {
  nvtxDomainHandle_t mine = nvtxDomainCreateA("mine");
  nvtxMessageValue_t value;
  value.ascii = "with payload";
  const nvtxEventAttributes_t attributes = Message(NVTX_MESSAGE_TYPE_ASCII, value);
  const uint64_t bytes = 4096;
  const nvtxPayloadData_t payload = {NVTX_PAYLOAD_ENTRY_TYPE_UINT64, sizeof bytes, &bytes};
  nvtxDomainRangePushEx(mine, &attributes);
  Touch(12);
  printf("%d", nvtxRangePopPayload(mine, &payload, 1));
  Touch(13);
  printf(" %d\n", nvtxRangePushPayload(mine, &payload, 1));
  Touch(14);
  nvtxRangePopPayload(mine, NULL, 0);
  LibraryStep(Touch, 15);
  Touch(16);
}

static void* Thread(void* unused) {
  (void)unused;
  nvtxNameOsThreadA((uint32_t)syscall(SYS_gettid), "data loader");
  nvtxNameOsThreadA((uint32_t)getpid(), "not this thread's");
  if (g_set_current(g_context) != 0)
    exit(3);
  Touch(11);
  return NULL;
}

int main(void) {
  StartDriver();
  Narrow();
  Wide();
  Domains();
  StartAndEnd();
  Payloads();
  nvtxMarkA("iteration 1");
  nvtxMarkW(L"wide mark");
  pthread_t thread;
  pthread_create(&thread, NULL, Thread, NULL);
  pthread_join(thread, NULL);
  return 0;
}
