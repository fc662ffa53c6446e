// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace vramscope::probe {

// For code that forgets entries: between two recordings other threads keep running, in a child
// after fork they are gone.
enum class OtherThreads : uint8_t { kRun, kGone };

// The state of a few things with a handle: contexts, pools, streams that are captured. Fixed size,
// no lock, no wait; any thread may call any of it, a signal handler in the middle of another call
// too. All bits zero is the empty table, so that an unused one costs no memory.
//
// A slot is claimed for a key, filled, and then published; only then it is found. If several
// threads insert one key at once, one of them succeeds. Used slots come first, so a search ends at
// the first unused slot: a few things take a few steps. `Value` is made of atomics, because a
// thread may still read a slot after another key has taken it.
template <class Value, size_t kCapacity>
class SlotTable {
 public:
  // Keys are handles. Smaller ones, and those with the highest bit, are the table's own.
  static constexpr uint64_t kFirstKey = 2;

  class Slot {
    friend class SlotTable;
    std::atomic<uint64_t> word_;

   public:
    Value value;

    // The key that it is published for, 0 for none.
    uint64_t key() const {
      const uint64_t word = word_.load(std::memory_order_seq_cst);
      return IsKey(word) ? word : 0;
    }
  };

  Slot* Find(uint64_t key) {
    for (Slot& slot : slots_) {
      const uint64_t word = slot.word_.load(std::memory_order_acquire);
      if (word == key)
        return &slot;
      if (word == kNeverUsed)
        return nullptr;
    }
    return nullptr;
  }

  enum class Outcome : uint8_t {
    kInserted,
    kKnown,  // it was in the table, or another thread is just inserting it
    kFull,
  };
  struct Inserted {
    Outcome outcome;
    Slot* slot;  // where it was inserted
  };
  // `fill` sets the value of a slot that other threads do not see yet.
  template <class Fill>
  Inserted Insert(uint64_t key, Fill fill) {
    if (Find(key) != nullptr)
      return {Outcome::kKnown, nullptr};
    for (Slot& slot : slots_) {
      uint64_t word = slot.word_.load(std::memory_order_relaxed);
      if (word > kRemoved ||
          !slot.word_.compare_exchange_strong(word, key | kClaim, std::memory_order_seq_cst)) {
        continue;
      }
      uint64_t ours = key | kClaim;
      if (IsForUs(key, &slot)) {
        fill(slot.value);
        if (slot.word_.compare_exchange_strong(ours, key, std::memory_order_seq_cst))
          return {Outcome::kInserted, &slot};
      }
      slot.word_.store(kRemoved, std::memory_order_seq_cst);
      return {Outcome::kKnown, nullptr};
    }
    return {Outcome::kFull, nullptr};
  }

  bool IsFirstSlot(const Slot* slot) const { return slot == slots_; }

  // If several threads remove the key from that slot, one of them succeeds.
  bool Remove(Slot* slot, uint64_t key) {
    return slot->word_.compare_exchange_strong(key, kRemoved, std::memory_order_seq_cst);
  }
  // Takes a removal back, unless the slot is another key's by now. Only by the thread that removed
  // it.
  bool Restore(Slot* slot, uint64_t key) {
    uint64_t word = kRemoved;
    return slot->word_.compare_exchange_strong(word, key, std::memory_order_seq_cst);
  }

  // Calls visit(slot, key) for what is published, until it returns false.
  template <class Function>
  void Visit(Function visit) {
    VisitUsed([&visit](Slot& slot) {
      const uint64_t word = slot.word_.load(std::memory_order_acquire);
      return !IsKey(word) || visit(slot, word);
    });
  }
  // The same for every slot that ever was.
  template <class Function>
  void VisitUsed(Function visit) {
    for (Slot& slot : slots_) {
      if (slot.word_.load(std::memory_order_acquire) == kNeverUsed || !visit(slot))
        return;
    }
  }

  // Removes all that is published; in a forked child also what other threads were just inserting.
  void Clear(OtherThreads others) {
    VisitUsed([others](Slot& slot) {
      uint64_t word = slot.word_.load(std::memory_order_relaxed);
      if (others == OtherThreads::kGone)
        slot.word_.store(kNeverUsed, std::memory_order_relaxed);
      else if (IsKey(word))
        slot.word_.compare_exchange_strong(word, kRemoved, std::memory_order_seq_cst);
      return true;
    });
  }

 private:
  static constexpr uint64_t kNeverUsed = 0;
  static constexpr uint64_t kRemoved = 1;
  // A thread fills the slot for the key beside this bit, or has given it up.
  static constexpr uint64_t kClaim = uint64_t{1} << 63;
  static constexpr uint64_t kGivenUp = kClaim;

  // With the highest bit a word is negative.
  static bool IsKey(uint64_t word) { return static_cast<int64_t>(word) >= int64_t{kFirstKey}; }

  // Whether the claim `ours` is the one that counts. Claims and searches have one order, so of two
  // claims at least one sees the other. The later slot then gives way. The earlier one stops it, or
  // gives way if the later one is already published.
  bool IsForUs(uint64_t key, const Slot* ours) {
    for (Slot& slot : slots_) {
      if (&slot == ours)
        continue;
      uint64_t word = slot.word_.load(std::memory_order_seq_cst);
      if (word == kNeverUsed)
        return true;
      if (word == (key | kClaim)) {
        if (&slot < ours)
          return false;
        if (slot.word_.compare_exchange_strong(word, kGivenUp, std::memory_order_seq_cst))
          continue;
      }
      if (word == key)
        return false;
    }
    return true;
  }

  Slot slots_[kCapacity];
};

}  // namespace vramscope::probe
