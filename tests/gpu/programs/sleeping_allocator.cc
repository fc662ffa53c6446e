// SPDX-License-Identifier: Apache-2.0
// Memory for PyTorch's MemPool that can go to sleep, by the driver calls of vLLM's CuMemAllocator:
// the addresses stay, the physical memory below them is unmapped and released, and mapped anew.
// sleeping_engine.py compiles it where it runs.
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

namespace {

using Address = unsigned long long;
using Handle = unsigned long long;
struct Location {
  int type;
  int id;
};
struct Properties {
  int type;
  int handle_types;
  Location location;
  void* metadata;
  unsigned char flags[8];
};
struct Access {
  Location location;
  int flags;
};
constexpr int kPinned = 1;
constexpr int kDevice = 1;
constexpr int kReadWrite = 3;
constexpr int kDeinitialized = 4;

// Calls the driver; an error ends the program.
template <class... Parameters, class... Arguments>
void Call(const char* name, int (*&function)(Parameters...), Arguments... arguments) {
  if (function == nullptr) {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    function = reinterpret_cast<int (*)(Parameters...)>(dlsym(driver, name));
  }
  const int result = function == nullptr ? -1 : function(arguments...);
  // At the end of the process the driver may be gone before the pools.
  if (result == 0 || result == kDeinitialized)
    return;
  std::fprintf(stderr, "%s: %d\n", name, result);
  std::abort();
}

int (*granularity)(size_t*, const Properties*, int);
int (*reserve)(Address*, size_t, size_t, Address, unsigned long long);
int (*create)(Handle*, size_t, const Properties*, unsigned long long);
int (*map)(Address, size_t, size_t, Handle, unsigned long long);
int (*set_access)(Address, size_t, const Access*, size_t);
int (*unmap)(Address, size_t);
int (*release)(Handle);
int (*free_address)(Address, size_t);
int (*copy_out)(void*, Address, size_t);
int (*copy_in)(Address, const void*, size_t);
int (*synchronize)();

struct Allocation {
  size_t size = 0;
  int device = 0;
  int tag = 0;
  Handle handle = 0;
  bool awake = false;
  std::vector<char> backup;

  void Wake(Address address) {
    const Properties properties{kPinned, 0, {kDevice, device}, nullptr, {}};
    Call("cuMemCreate", create, &handle, size, &properties, 0ull);
    Call("cuMemMap", map, address, size, size_t{0}, handle, 0ull);
    const Access access{{kDevice, device}, kReadWrite};
    Call("cuMemSetAccess", set_access, address, size, &access, size_t{1});
    if (!backup.empty())
      Call("cuMemcpyHtoD_v2", copy_in, address, static_cast<const void*>(backup.data()), size);
    backup.clear();
    awake = true;
  }
  void Sleep(Address address, bool keep) {
    if (keep) {
      backup.resize(size);
      Call("cuMemcpyDtoH_v2", copy_out, static_cast<void*>(backup.data()), address, size);
    }
    Call("cuMemUnmap", unmap, address, size);
    Call("cuMemRelease", release, handle);
    awake = false;
  }
};

// Never destroyed, for the same reason.
auto& mutex = *new std::mutex;
auto& allocations = *new std::map<Address, Allocation>;
int current_tag = 0;

}  // namespace

extern "C" {

void* sleeping_malloc(ptrdiff_t bytes, int device, void*) {
  const Properties properties{kPinned, 0, {kDevice, device}, nullptr, {}};
  size_t unit = 0;
  Call("cuMemGetAllocationGranularity", granularity, &unit, &properties, 0);
  Allocation allocation;
  allocation.size = (static_cast<size_t>(bytes) + unit - 1) / unit * unit;
  allocation.device = device;
  allocation.tag = current_tag;
  Address address = 0;
  Call("cuMemAddressReserve", reserve, &address, allocation.size, size_t{0}, Address{0}, 0ull);
  allocation.Wake(address);
  const std::lock_guard lock(mutex);
  allocations[address] = std::move(allocation);
  return reinterpret_cast<void*>(address);
}

void sleeping_free(void* memory, ptrdiff_t, int, void*) {
  const auto address = reinterpret_cast<Address>(memory);
  const std::lock_guard lock(mutex);
  Allocation& allocation = allocations.at(address);
  Call("cuCtxSynchronize", synchronize);
  if (allocation.awake)
    allocation.Sleep(address, false);
  Call("cuMemAddressFree", free_address, address, allocation.size);
  allocations.erase(address);
}

void sleeping_set_tag(int tag) {
  current_tag = tag;
}

void sleeping_sleep(int tag, int keep) {
  Call("cuCtxSynchronize", synchronize);
  const std::lock_guard lock(mutex);
  for (auto& [address, allocation] : allocations) {
    if (allocation.tag == tag && allocation.awake)
      allocation.Sleep(address, keep != 0);
  }
}

void sleeping_wake(int tag) {
  const std::lock_guard lock(mutex);
  for (auto& [address, allocation] : allocations) {
    if (allocation.tag == tag && !allocation.awake)
      allocation.Wake(address);
  }
}
}
