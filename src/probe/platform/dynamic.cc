// SPDX-License-Identifier: Apache-2.0
#include "probe/platform/dynamic.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstring>

namespace vramscope::probe {
namespace {

using DlopenFn = void* (*)(const char*, int);
using DlmopenFn = void* (*)(Lmid_t, const char*, int);
using DlsymFn = void* (*)(void*, const char*);

std::atomic<DlopenFn> g_real_dlopen{nullptr};
std::atomic<DlopenFn> g_c_library_dlopen{nullptr};
std::atomic<DlmopenFn> g_real_dlmopen{nullptr};
std::atomic<DlsymFn> g_real_dlsym{nullptr};

#if defined(__x86_64__)
constexpr char kFirstVersion[] = "GLIBC_2.2.5";
#elif defined(__aarch64__)
constexpr char kFirstVersion[] = "GLIBC_2.17";
#endif

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
    real = reinterpret_cast<DlopenFn>(RealDlsym(RTLD_NEXT, "dlopen"));
    g_real_dlopen.store(real, std::memory_order_relaxed);
  }
  return reinterpret_cast<void*>(real);
}

void* RealDlopen(const char* file, int mode) {
  auto* const real = reinterpret_cast<DlopenFn>(RealDlopenAddress());
  return real != nullptr ? real(file, mode) : nullptr;
}

void* RealDlmopenAddress() {
  DlmopenFn real = g_real_dlmopen.load(std::memory_order_relaxed);
  if (real == nullptr) {
    real = reinterpret_cast<DlmopenFn>(RealDlsym(RTLD_NEXT, "dlmopen"));
    g_real_dlmopen.store(real, std::memory_order_relaxed);
  }
  return reinterpret_cast<void*>(real);
}

// With a version only the C library's own is found: other tools interpose dlsym, and answer with
// functions of theirs.
void* RealDlsym(void* handle, const char* symbol) {
  DlsymFn real = g_real_dlsym.load(std::memory_order_relaxed);
  if (real == nullptr) {
    real = reinterpret_cast<DlsymFn>(dlvsym(RTLD_NEXT, "dlsym", kFirstVersion));
    if (real == nullptr)
      real = dlsym;
    g_real_dlsym.store(real, std::memory_order_relaxed);
  }
  return real(handle, symbol);
}

// By the C library's own function: others put a lock around it, which a fork can leave held.
void* ReferToLoaded(const char* file) {
  DlopenFn real = g_c_library_dlopen.load(std::memory_order_relaxed);
  if (real == nullptr) {
    real = reinterpret_cast<DlopenFn>(dlvsym(RTLD_NEXT, "dlopen", kFirstVersion));
    if (real == nullptr)
      real = RealDlopen;
    g_c_library_dlopen.store(real, std::memory_order_relaxed);
  }
  return real(file, RTLD_LAZY | RTLD_NOLOAD);
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
  void* library = ReferToLoaded(path);
  return library != nullptr ? RealDlsym(library, symbol) : nullptr;
}

}  // namespace vramscope::probe
