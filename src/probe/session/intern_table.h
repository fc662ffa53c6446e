// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vramscope::probe {

// Fixed-capacity open-addressing map from a 64-bit hash to an id. Lives in zeroed mmap'ed memory,
// so that untouched parts cost nothing. Hash 0 and id 0 mean "empty".
template <uint32_t kCapacity>
class InternTable {
  static_assert((kCapacity & (kCapacity - 1)) == 0);

 public:
  // The id stored for `hash`, or 0.
  uint32_t Find(uint64_t hash) const {
    for (uint32_t i = Slot(hash);; i = (i + 1) & (kCapacity - 1)) {
      if (slots_[i].hash == hash)
        return slots_[i].id;
      if (slots_[i].id == 0)
        return 0;
    }
  }
  // False when the table is three quarters full: the caller resets it first.
  bool Insert(uint64_t hash, uint32_t id) {
    if (size_ >= kCapacity / 4 * 3)
      return false;
    uint32_t i = Slot(hash);
    while (slots_[i].id != 0)
      i = (i + 1) & (kCapacity - 1);
    slots_[i] = {hash, id};
    ++size_;
    return true;
  }
  void Clear() {
    for (auto& slot : slots_)
      slot = {0, 0};
    size_ = 0;
  }

 private:
  struct Entry {
    uint64_t hash;
    uint32_t id;
  };
  static uint32_t Slot(uint64_t hash) {
    return static_cast<uint32_t>(hash >> 32) & (kCapacity - 1);
  }

  Entry slots_[kCapacity];
  uint32_t size_;
};

// Mixes one word into a running hash: multiply-xorshift, as in wyhash and splitmix64.
inline uint64_t HashMix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

}  // namespace vramscope::probe
