// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace vramscope::probe {

// A set of addresses that any thread may ask, without a lock, while one at a time changes it. The
// answer may be stale; the set may forget everything when it is full. Lives in zeroed memory.
template <uint32_t kCapacity>
class AddressSet {
  static_assert((kCapacity & (kCapacity - 1)) == 0);

 public:
  bool Contains(uintptr_t address) const {
    for (uint32_t i = Slot(address);; i = (i + 1) & (kCapacity - 1)) {
      const uintptr_t found = slots_[i].load(std::memory_order_relaxed);
      if (found == address)
        return true;
      if (found == 0)
        return false;
    }
  }
  // Changes when something is taken out: what is found after it was read is there until it has
  // changed. Also when any thread wants all to be looked for anew.
  void LookAnew() { taken_out_.fetch_add(1, std::memory_order_release); }
  uint32_t taken_out() const { return taken_out_.load(std::memory_order_acquire); }
  void Insert(uintptr_t address) {
    if (Contains(address))
      return;
    // Slots of what was erased count too: searches pass over them.
    if (used_ >= kCapacity / 4 * 3)
      Clear();
    uint32_t i = Slot(address);
    while (slots_[i].load(std::memory_order_relaxed) > kErased)
      i = (i + 1) & (kCapacity - 1);
    if (slots_[i].load(std::memory_order_relaxed) == 0)
      ++used_;
    slots_[i].store(address, std::memory_order_relaxed);
  }
  void Erase(uintptr_t address) {
    for (uint32_t i = Slot(address);; i = (i + 1) & (kCapacity - 1)) {
      const uintptr_t found = slots_[i].load(std::memory_order_relaxed);
      if (found == 0)
        return;
      if (found != address)
        continue;
      slots_[i].store(kErased, std::memory_order_relaxed);
      LookAnew();
      return;
    }
  }
  // Takes it out; whether it was there. Any thread may, and nothing is looked for anew.
  bool Take(uintptr_t address) {
    for (uint32_t i = Slot(address);; i = (i + 1) & (kCapacity - 1)) {
      uintptr_t found = slots_[i].load(std::memory_order_relaxed);
      if (found == 0)
        return false;
      if (found == address)
        return slots_[i].compare_exchange_strong(found, kErased, std::memory_order_relaxed);
    }
  }
  void Clear() {
    for (auto& slot : slots_)
      slot.store(0, std::memory_order_relaxed);
    used_ = 0;
    LookAnew();
  }

 private:
  static constexpr uintptr_t kErased = 1;
  static uint32_t Slot(uintptr_t address) {
    return static_cast<uint32_t>((address * 0x9e3779b97f4a7c15u) >> 32) & (kCapacity - 1);
  }

  std::atomic<uint32_t> taken_out_;
  std::atomic<uintptr_t> slots_[kCapacity];
  uint32_t used_;
};

}  // namespace vramscope::probe
