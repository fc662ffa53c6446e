// SPDX-License-Identifier: Apache-2.0
// A library with a search path of its own, from which driver_route opens the driver.
#include <dlfcn.h>

void* OpenFile(const char* file) {
  // No tail call: the loader looks at the return address.
  void* volatile library = dlopen(file, RTLD_NOW);
  return library;
}
