// SPDX-License-Identifier: Apache-2.0
#pragma once

// Instants at which a CUDA test program reads the fake driver's books: Step("name") adds "name
// time_ns pid bytes of device 0, 1, ..." to the file of VRAMSCOPE_TEST_STEPS. The ledger of
// the recording must have the same bytes then. Programs of several processes share the file.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda_driver.h"
#include "fake_cuda/books.h"

// A process has an end for the recording when the launcher gets the processor and sees it; for its
// parent, before.
inline void LetEndBeSeen() {
  if (std::getenv("VRAMSCOPE_TEST_STEPS") != nullptr)
    usleep(300'000);
}

inline void Step(const char* name) {
  static FakeBooks* const books = FakeBooksOpen();
  const char* const path = std::getenv("VRAMSCOPE_TEST_STEPS");
  if (books == nullptr || path == nullptr)
    return;
  // Apart from the calls around it by more than clocks of two processes can differ.
  constexpr useconds_t kApartUs = 500;
  usleep(kApartUs);
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  char text[256];
  int size = std::snprintf(text, sizeof text, "%s %lld %d", name,
                           now.tv_sec * 1'000'000'000ll + now.tv_nsec, getpid());
  for (unsigned i = 0; i < books->device_count; ++i) {
    size += std::snprintf(text + size, sizeof text - static_cast<size_t>(size), " %llu",
                          static_cast<unsigned long long>(FakeBooksDeviceUsed(&books->devices[i])));
  }
  text[size++] = '\n';
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  REQUIRE(file >= 0 && write(file, text, static_cast<size_t>(size)) == size);
  close(file);
  usleep(kApartUs);
}
