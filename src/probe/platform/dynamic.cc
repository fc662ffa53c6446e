// SPDX-License-Identifier: Apache-2.0
#include "probe/platform/dynamic.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstring>

namespace vramscope::probe {
namespace {

using DlopenFn = void* (*)(const char*, int);

std::atomic<DlopenFn> g_real_dlopen{nullptr};

struct FindRequest {
  const char* prefix;
  const char* path;
};

int MatchLibrary(dl_phdr_info* info, size_t, void* data) {
  auto* request = static_cast<FindRequest*>(data);
  const char* name = info->dlpi_name;
  if (name == nullptr)
    return 0;
  const char* slash = std::strrchr(name, '/');
  const char* base = slash != nullptr ? slash + 1 : name;
  if (std::strncmp(base, request->prefix, std::strlen(request->prefix)) != 0)
    return 0;
  request->path = name;  // belongs to the link map; such libraries are never unloaded
  return 1;
}

}  // namespace

void* RealDlopenAddress() {
  DlopenFn real = g_real_dlopen.load(std::memory_order_relaxed);
  if (real == nullptr) {
    real = reinterpret_cast<DlopenFn>(dlsym(RTLD_NEXT, "dlopen"));
    g_real_dlopen.store(real, std::memory_order_relaxed);
  }
  return reinterpret_cast<void*>(real);
}

void* RealDlopen(const char* file, int mode) {
  auto* const real = reinterpret_cast<DlopenFn>(RealDlopenAddress());
  return real != nullptr ? real(file, mode) : nullptr;
}

void* RealDlsym(void* handle, const char* symbol) {
  return dlsym(handle, symbol);
}

const char* FindLoadedLibrary(const char* prefix) {
  FindRequest request{prefix, nullptr};
  dl_iterate_phdr(MatchLibrary, &request);
  return request.path;
}

void* FindInLoadedLibrary(const char* prefix, const char* symbol) {
  const char* path = FindLoadedLibrary(prefix);
  if (path == nullptr)
    return nullptr;
  // RTLD_NOLOAD: a reference to what is there. The reference is kept, it costs nothing.
  void* library = RealDlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  return library != nullptr ? dlsym(library, symbol) : nullptr;
}

}  // namespace vramscope::probe
