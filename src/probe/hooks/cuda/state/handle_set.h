// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "probe/session/tables.h"

namespace vramscope::probe::cuda {

// The key of a handle in a context. Both are addresses, a fixed distance apart as a rule: one is
// mixed before the other comes in, or two pairs with the same distance were one.
inline uint64_t MakeContextKey(uint64_t context, uint64_t handle) {
  return HashMix(HashMix(0, context), handle);
}

// A set of driver handles: fixed size, no lock, a look-up is one probe as a rule. Safe in any
// thread. When a neighbourhood is full, everything is forgotten: users of the set then repeat
// something, which is correct and rare.
//
// All bits zero is the empty set, so that an unused table costs no memory.
template <size_t kCapacity>
class HandleSet {
  static_assert((kCapacity & (kCapacity - 1)) == 0);
  static constexpr size_t kMaxProbes = 32;

 public:
  bool Contains(uint64_t handle) const {
    const uint64_t key = Key(handle);
    for (size_t i = 0; i < kMaxProbes; ++i) {
      const uint64_t found = slots_[Slot(key, i)].load(std::memory_order_relaxed);
      if (found == key)
        return true;
      if (found == 0)
        return false;
    }
    return false;
  }

  // False when it was there already.
  bool Insert(uint64_t handle) {
    const uint64_t key = Key(handle);
    for (int attempt = 0; attempt < 2; ++attempt) {
      if (Contains(handle))
        return false;
      for (size_t i = 0; i < kMaxProbes; ++i) {
        std::atomic<uint64_t>& slot = slots_[Slot(key, i)];
        uint64_t found = slot.load(std::memory_order_relaxed);
        if (found == key)
          return false;
        if (found <= kRemoved &&
            slot.compare_exchange_strong(found, key, std::memory_order_relaxed)) {
          return true;
        }
        if (found == key)
          return false;
      }
      Clear();
    }
    return true;
  }

  // False when it was not there.
  bool Erase(uint64_t handle) {
    const uint64_t key = Key(handle);
    for (size_t i = 0; i < kMaxProbes; ++i) {
      uint64_t found = key;
      std::atomic<uint64_t>& slot = slots_[Slot(key, i)];
      if (slot.compare_exchange_strong(found, kRemoved, std::memory_order_relaxed))
        return true;
      if (found == 0)
        return false;
    }
    return false;
  }

  void Clear() {
    for (auto& slot : slots_)
      slot.store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr uint64_t kRemoved = 1;

  // Handles are addresses as a rule: two low values are free for the table's own use.
  static uint64_t Key(uint64_t handle) { return handle > kRemoved ? handle : handle + 2; }
  static size_t Slot(uint64_t key, size_t probe) {
    return (static_cast<size_t>(HashMix(0, key) >> 17) + probe) & (kCapacity - 1);
  }

  std::atomic<uint64_t> slots_[kCapacity];
};

}  // namespace vramscope::probe::cuda
