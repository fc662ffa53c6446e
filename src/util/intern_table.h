// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vramscope::util {

// Finds the id of an equal value among values that the caller keeps in a vector: an open-addressed
// table of ids, 4 bytes each, that knows neither the values nor their type.
class InternTable {
 public:
  // `equal(id)` compares the value looked up with the one that `id` stands for, `hash_of(id)`
  // hashes a stored one (used when the table grows). Returns the id found, or `new_id` after
  // entering it.
  template <class Equal, class HashOf>
  uint32_t Intern(uint64_t hash, uint32_t new_id, const Equal& equal, const HashOf& hash_of) {
    if ((count_ + 1) * 2 > slots_.size())
      Grow(hash_of);
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
      if (slots_[at] == kEmpty) {
        slots_[at] = new_id;
        ++count_;
        return new_id;
      }
      if (equal(slots_[at]))
        return slots_[at];
    }
  }

 private:
  static constexpr uint32_t kEmpty = 0xffffffff;

  template <class HashOf>
  void Grow(const HashOf& hash_of) {
    std::vector<uint32_t> old(slots_.empty() ? 64 : slots_.size() * 2, kEmpty);
    old.swap(slots_);
    const size_t mask = slots_.size() - 1;
    for (const uint32_t id : old) {
      if (id == kEmpty)
        continue;
      size_t at = hash_of(id) & mask;
      while (slots_[at] != kEmpty)
        at = (at + 1) & mask;
      slots_[at] = id;
    }
  }

  std::vector<uint32_t> slots_;
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
