// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vramscope::trace {

// A set of 64-bit keys, open-addressed, without tombstones: as cheap as the live set of a program
// needs it to be at tens of millions of events a second. Key 0 is not allowed.
class AddressSet {
 public:
  // False when it was in already.
  bool Insert(uint64_t key) {
    if ((count_ + 1) * 2 > slots_.size())
      Grow();
    for (size_t at = Slot(key);; at = Next(at)) {
      if (slots_[at] == key)
        return false;
      if (slots_[at] != 0)
        continue;
      slots_[at] = key;
      ++count_;
      return true;
    }
  }
  // False when it was not in.
  bool Erase(uint64_t key) {
    if (count_ == 0)
      return false;
    size_t at = Slot(key);
    while (slots_[at] != key) {
      if (slots_[at] == 0)
        return false;
      at = Next(at);
    }
    // Later keys of the same run move up, so that they are still found from their own slot.
    for (size_t next = Next(at); slots_[next] != 0; next = Next(next)) {
      const size_t home = Slot(slots_[next]);
      if (((next - home) & (slots_.size() - 1)) < ((next - at) & (slots_.size() - 1)))
        continue;
      slots_[at] = slots_[next];
      at = next;
    }
    slots_[at] = 0;
    --count_;
    return true;
  }
  void Clear() {
    slots_.clear();
    count_ = 0;
  }
  size_t size() const { return count_; }

 private:
  // Addresses differ in their middle bits; the multiplication moves them to the top.
  size_t Slot(uint64_t key) const { return (key * 0x9e3779b97f4a7c15u) >> shift_; }
  size_t Next(size_t at) const { return (at + 1) & (slots_.size() - 1); }
  void Grow() {
    std::vector<uint64_t> old(slots_.empty() ? kFirstCapacity : slots_.size() * 2, 0);
    old.swap(slots_);
    shift_ = 64 - std::countr_zero(slots_.size());
    for (const uint64_t key : old) {
      if (key == 0)
        continue;
      size_t at = Slot(key);
      while (slots_[at] != 0)
        at = Next(at);
      slots_[at] = key;
    }
  }

  static constexpr size_t kFirstCapacity = 64;

  std::vector<uint64_t> slots_;
  int shift_ = 0;
  size_t count_ = 0;
};

}  // namespace vramscope::trace
