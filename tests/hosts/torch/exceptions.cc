// SPDX-License-Identifier: Apache-2.0
// Exceptions and the end of a thread, through the hooks.
#include <pthread.h>

#include <cstdio>
#include <new>
#include <stdexcept>

namespace c10 {
void* alloc_cpu(size_t size);
void free_cpu(void* pointer);
}  // namespace c10

namespace {

struct Guard {
  ~Guard() { c10::free_cpu(c10::alloc_cpu(50)); }
};

void* Worker(void*) {
  Guard guard;
  c10::alloc_cpu(667);
  return nullptr;
}

}  // namespace

int main() {
  int caught = 0;
  for (int i = 0; i < 1000; ++i) {
    try {
      Guard guard;
      c10::alloc_cpu(666);
    } catch (const std::bad_alloc&) {
      ++caught;
      c10::free_cpu(c10::alloc_cpu(60));
    }
  }
  for (int i = 0; i < 10; ++i) {
    pthread_t thread;
    pthread_create(&thread, nullptr, Worker, nullptr);
    pthread_join(thread, nullptr);
  }
  std::printf("%d\n", caught);
  throw std::runtime_error("as the program wants it");
}
