// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/compiler.h"

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

// Entries by a key that is never 0, one behind the other in the order in which they came. Programs
// repeat themselves, so Find() tries the entry after the last one found, then the last one itself.
// A training step then reads its entries as a list, which the processor prefetches. The slots,
// where each entry's place is in a cache line of its own, are searched only where the order
// changes. Lives in zeroed memory, whose unused part costs nothing. Not thread-safe.
template <class Entry, auto kKey, uint32_t kCapacity>
class OrderedTable {
  static_assert((kCapacity & (kCapacity - 1)) == 0);

 public:
  // Null if there is none.
  VRAMSCOPE_ALWAYS_INLINE Entry* Find(uint64_t key) {
    Entry* const last = &entries_[last_];
    if (VRAMSCOPE_LIKELY(last[1].*kKey == key)) {
      ++last_;
      return last + 1;
    }
    return last->*kKey == key ? last : Search(key);
  }

  // A new one, all zeros but for its key, which no other has. Null if the table is full.
  Entry* Add(uint64_t key) {
    if (size_ == kCapacity)
      return nullptr;
    uint32_t i = Slot(key);
    while (slots_[i] != 0)
      i = (i + 1) & kSlotMask;
    slots_[i] = ++size_;
    last_ = size_;
    entries_[size_].*kKey = key;
    return &entries_[size_];
  }

  void Clear() {
    for (Entry& entry : *this)
      entry = {};
    for (uint32_t& slot : slots_)
      slot = 0;
    size_ = last_ = 0;
  }

  Entry* begin() { return &entries_[1]; }
  Entry* end() { return &entries_[1] + size_; }

 private:
  static constexpr uint32_t kSlotMask = 2 * kCapacity - 1;
  static uint32_t Slot(uint64_t key) {
    return static_cast<uint32_t>((key * 0x9e3779b97f4a7c15u) >> 32) & kSlotMask;
  }

  VRAMSCOPE_NOINLINE Entry* Search(uint64_t key) {
    for (uint32_t i = Slot(key); slots_[i] != 0; i = (i + 1) & kSlotMask) {
      Entry* const entry = &entries_[slots_[i]];
      if (entry->*kKey != key)
        continue;
      last_ = slots_[i];
      return entry;
    }
    return nullptr;
  }

  uint32_t size_;
  uint32_t last_;                  // the place of the one found last; 0: none was
  Entry entries_[kCapacity + 2];   // from 1 on, between two that stay empty
  uint32_t slots_[2 * kCapacity];  // places; 0: free
};

}  // namespace vramscope::probe
