// SPDX-License-Identifier: Apache-2.0
// A fake libc10.so whose allocator throws on lack of memory like the real one, and ends the thread
// on request.
#include <pthread.h>

#include <cstdlib>
#include <new>

namespace c10 {

__attribute__((visibility("default"))) void* alloc_cpu(size_t size) {
  if (size == 666)
    throw std::bad_alloc();
  if (size == 667)
    pthread_exit(nullptr);
  return std::malloc(size);
}

__attribute__((visibility("default"))) void free_cpu(void* pointer) {
  std::free(pointer);
}

}  // namespace c10
