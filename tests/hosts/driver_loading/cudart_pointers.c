// SPDX-License-Identifier: Apache-2.0
// The real CUDA runtime on the fake driver: it fetches all of its pointers and stops where the fake
// driver lacks private tables. How many words of the program's data are still the driver's own
// cuMemAlloc_v2 goes to the file that POINTERS_FILE names; the output must not depend on who
// watches. Built by tests/e2e/probe/test_routes.py where there is a toolkit.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cudaGetDeviceCount(int* count);
int cudaMalloc(void** pointer, size_t bytes);

struct search {
  const void* wanted;
  int found;
};

static int look(struct dl_phdr_info* info, size_t size, void* data) {
  struct search* search = data;
  (void)size;
  // The driver's own data and the probe's knowledge of it are not callers.
  if (strstr(info->dlpi_name, "libcuda.so") != NULL || strstr(info->dlpi_name, "vramscope") != NULL)
    return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = &info->dlpi_phdr[i];
    if (header->p_type != PT_LOAD || (header->p_flags & PF_W) == 0)
      continue;
    const uintptr_t begin = info->dlpi_addr + header->p_vaddr;
    for (uintptr_t at = (begin + 7) & ~(uintptr_t)7; at + 8 <= begin + header->p_memsz; at += 8)
      search->found += *(const void* const*)at == search->wanted;
  }
  return 0;
}

int main(void) {
  int count = 0;
  void* pointer = NULL;
  const int first = cudaGetDeviceCount(&count);
  const int second = cudaMalloc(&pointer, 1 << 20);
  printf("%d %d\n", first, second);

  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  void* (*choose)(const char*, int, unsigned long long) =
      (void* (*)(const char*, int, unsigned long long))dlsym(driver, "FakeChoose");
  struct search search = {choose("cuMemAlloc", 13000, 0), 0};
  dl_iterate_phdr(look, &search);
  FILE* file = fopen(getenv("POINTERS_FILE"), "w");
  fprintf(file, "%d", search.found);
  return fclose(file);
}
