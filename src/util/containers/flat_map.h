// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace vramscope::util {

// From a 64-bit key to a 32-bit index: open addressing with linear probing, and erasure that moves
// followers back, so that no tombstones pile up under the alloc-free pattern of a trace.
//
//   slot:  | key 8 bytes | index 4 bytes |      index kNone: the slot is empty
//
// Keys and indices share one array of 12-byte slots, so that a look-up touches one cache line.
class FlatMap {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  FlatMap() : slots_(kFirstCapacity), shift_(64 - std::countr_zero(kFirstCapacity)) {}

  size_t size() const { return size_; }

  // The index stored under `key`, or kNone.
  uint32_t Find(uint64_t key) const {
    for (size_t at = Home(key);; at = Next(at)) {
      if (slots_[at].index == kNone)
        return kNone;
      if (slots_[at].key() == key)
        return slots_[at].index;
    }
  }

  // The slot's index of `key`; kNone if the key is new: the caller sets it before the next call.
  uint32_t& FindOrAdd(uint64_t key) {
    if ((size_ + 1) * 8 > slots_.size() * 5)
      Grow();
    size_t at = Home(key);
    while (slots_[at].index != kNone) {
      if (slots_[at].key() == key)
        return slots_[at].index;
      at = Next(at);
    }
    slots_[at].SetKey(key);
    ++size_;
    return slots_[at].index;
  }

  // Removes the key and returns its index, or kNone if there was none.
  uint32_t Erase(uint64_t key) {
    size_t hole = Home(key);
    for (;; hole = Next(hole)) {
      if (slots_[hole].index == kNone)
        return kNone;
      if (slots_[hole].key() == key)
        break;
    }
    const uint32_t found = slots_[hole].index;
    const size_t mask = slots_.size() - 1;
    for (size_t at = Next(hole); slots_[at].index != kNone; at = Next(at)) {
      // A follower may move back into the hole unless that is before its own home.
      const size_t distance = (at - Home(slots_[at].key())) & mask;
      if (distance >= ((at - hole) & mask)) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole].index = kNone;
    --size_;
    return found;
  }

 private:
  static constexpr size_t kFirstCapacity = 64;

  struct Slot {
    uint32_t key_low = 0;
    uint32_t key_high = 0;
    uint32_t index = kNone;
    uint64_t key() const { return uint64_t{key_high} << 32 | key_low; }
    void SetKey(uint64_t key) {
      key_low = static_cast<uint32_t>(key);
      key_high = static_cast<uint32_t>(key >> 32);
    }
  };

  // Addresses differ in their middle bits; the multiplication moves them to the top.
  size_t Home(uint64_t key) const { return (key * 0x9e3779b97f4a7c15u) >> shift_; }
  size_t Next(size_t at) const { return (at + 1) & (slots_.size() - 1); }

  void Grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    --shift_;
    for (const Slot& slot : old) {
      if (slot.index == kNone)
        continue;
      size_t at = Home(slot.key());
      while (slots_[at].index != kNone)
        at = Next(at);
      slots_[at] = slot;
    }
  }

  std::vector<Slot> slots_;
  int shift_;
  size_t size_ = 0;
};

// Records under stable 32-bit indices, freed ones reused. The record type says whether it is in
// use (`bool live() const`), so that the live ones can be walked without a list of their own.
template <class T>
class Slab {
 public:
  // The index of a record that the caller fills. References do not survive the next Add.
  uint32_t Add() {
    if (!free_.empty()) {
      const uint32_t index = free_.back();
      free_.pop_back();
      return index;
    }
    records_.emplace_back();
    return static_cast<uint32_t>(records_.size() - 1);
  }
  void Remove(uint32_t index) {
    // In its place: a copy of one made elsewhere waits for that to be stored.
    std::destroy_at(&records_[index]);
    std::construct_at(&records_[index]);
    free_.push_back(index);
  }
  T& operator[](uint32_t index) { return records_[index]; }
  const T& operator[](uint32_t index) const { return records_[index]; }

  size_t live_count() const { return records_.size() - free_.size(); }

  // Calls visit(index, record) for each record in use. The visitor may remove the record it sees.
  template <class Visitor>
  void ForEach(Visitor visit) {
    for (uint32_t i = 0; i < records_.size(); ++i) {
      if (records_[i].live())
        visit(i, records_[i]);
    }
  }
  template <class Visitor>
  void ForEach(Visitor visit) const {
    for (uint32_t i = 0; i < records_.size(); ++i) {
      if (records_[i].live())
        visit(i, records_[i]);
    }
  }

 private:
  std::vector<T> records_;
  std::vector<uint32_t> free_;
};

}  // namespace vramscope::util
