// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "fake.h"

// Memory of several processes: in the books of the machine, where every process finds it, and once
// in the device's figure as long as one of its holders lives.
namespace fake {
namespace {

FakeShared* Find(const SharedId& id) {
  if (id.slot < 0 || id.slot >= FAKE_MAX_SHARED || !IsDevice(id.device))
    return nullptr;
  FakeShared* const shared = &TheDriver().books->devices[id.device].shared[id.slot];
  return __atomic_load_n(&shared->nonce, __ATOMIC_ACQUIRE) == id.nonce ? shared : nullptr;
}

bool AddHolder(FakeShared* shared) {
  for (uint32_t& holder : shared->holders) {
    uint32_t old = __atomic_load_n(&holder, __ATOMIC_RELAXED);
    if (!FakeProcessIsAlive(old) &&
        __atomic_compare_exchange_n(&holder, &old, static_cast<uint32_t>(getpid()), 0,
                                    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      return true;
  }
  return false;
}

}  // namespace

SharedId BeginSharing(int device, uint64_t bytes, uint64_t size) {
  Device& owner = TheDriver().devices[static_cast<size_t>(device)];
  static uint64_t count = 0;
  const uint64_t nonce = (static_cast<uint64_t>(getpid()) << 32) | ++count;
  for (int slot = 0; slot < FAKE_MAX_SHARED; ++slot) {
    FakeShared* const shared = &owner.books->shared[slot];
    uint64_t none = 0;
    if (!__atomic_compare_exchange_n(&shared->bytes, &none, bytes, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
      continue;
    __atomic_store_n(&shared->nonce, nonce, __ATOMIC_RELEASE);
    AddHolder(shared);
    __atomic_fetch_sub(&owner.row->device_bytes, static_cast<int64_t>(bytes), __ATOMIC_RELAXED);
    return {device, slot, nonce, size};
  }
  return {};
}

uint64_t HoldShared(const SharedId& id) {
  FakeShared* const shared = Find(id);
  return shared != nullptr && FakeSharedIsHeld(shared) && AddHolder(shared) ? shared->bytes : 0;
}

void LeaveShared(const SharedId& id, bool exporter) {
  FakeShared* const shared = Find(id);
  if (shared == nullptr)
    return;
  const auto self = static_cast<uint32_t>(getpid());
  for (uint32_t& holder : shared->holders) {
    uint32_t expected = self;
    if (__atomic_compare_exchange_n(&holder, &expected, 0u, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      break;
  }
  if (exporter) {
    FakeProcess* const row = TheDriver().devices[static_cast<size_t>(id.device)].row;
    __atomic_fetch_add(&row->device_bytes, static_cast<int64_t>(shared->bytes), __ATOMIC_RELAXED);
  }
  if (!FakeSharedIsHeld(shared))
    __atomic_store_n(&shared->bytes, uint64_t{0}, __ATOMIC_RELEASE);
}

}  // namespace fake
