// SPDX-License-Identifier: Apache-2.0
// A stand-in libc10.so whose allocator throws where memory is short, as the real one does, and ends
// the thread where it is asked for that.
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
