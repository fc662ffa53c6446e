// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vramscope::util {

// Finds the id of an equal value among values that the caller keeps in a vector: an open-addressed
// table of ids that knows neither the values nor their type. Each id is stored with a part of its
// hash, so that values are rarely compared in vain.
//
//   values, the caller's:  0 "a" | 1 "b" | 2 "c"
//   slots:                 - | 2, tag | - | - | 0, tag | 1, tag | - | -
class InternTable {
 public:
  // `equal(id)` compares the value with the one of `id`, `hash_of(id)` hashes a stored one (used
  // when the table grows). Returns the id found, or `new_id` after entering it.
  template <class Equal, class HashOf>
  uint32_t Intern(uint64_t hash, uint32_t new_id, const Equal& equal, const HashOf& hash_of) {
    if ((count_ + 1) * 2 > slots_.size())
      Grow(hash_of);
    const size_t mask = slots_.size() - 1;
    const uint32_t tag = TagOf(hash);
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
      Slot& slot = slots_[at];
      if (slot.id == kEmpty) {
        slot = {new_id, tag};
        ++count_;
        return new_id;
      }
      if (slot.tag == tag && equal(slot.id))
        return slot.id;
    }
  }

 private:
  static constexpr uint32_t kEmpty = 0xffffffff;

  struct Slot {
    uint32_t id = kEmpty;
    uint32_t tag = 0;
  };
  static uint32_t TagOf(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

  template <class HashOf>
  void Grow(const HashOf& hash_of) {
    std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
    old.swap(slots_);
    const size_t mask = slots_.size() - 1;
    for (const Slot& slot : old) {
      if (slot.id == kEmpty)
        continue;
      size_t at = hash_of(slot.id) & mask;
      while (slots_[at].id != kEmpty)
        at = (at + 1) & mask;
      slots_[at] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

// A well-mixed 64-bit hash (the finaliser of MurmurHash3).
constexpr uint64_t Mix64(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdull;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53ull;
  return value ^ (value >> 33);
}

}  // namespace vramscope::util
