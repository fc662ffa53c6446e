// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/compiler.h"
#include "probe/stack/native/cfi.h"

namespace vramscope::probe {

// The facts that almost every frame needs to find its caller, in one word: the stack pointer before
// the call (the CFA) from rsp or rbp, and the place where rbp was saved. The return address is
// below the CFA.
class UnwindRow {
 public:
  enum Kind : uint64_t {
    kNone,
    kFromRsp,        // CFA = rsp + offset
    kFromRbp,        // CFA = rbp + offset
    kFromRbpMemory,  // CFA = the word at rbp + offset, and rbp is saved where it points
    kOutermost,
    kOther,    // the tables say something that has no room here
    kNoTable,  // no unwinding information
  };

  constexpr UnwindRow() = default;
  explicit constexpr UnwindRow(uint64_t bits) : bits_(bits) {}
  explicit constexpr UnwindRow(Kind kind) : bits_(kind) {}
  // The row for the code at `rules`' address.
  explicit UnwindRow(const CfiRules& rules);

  uint64_t bits() const { return bits_; }
  Kind kind() const { return static_cast<Kind>(bits_ & 7); }
  bool has_rbp() const { return (bits_ & kHasRbp) != 0; }
  int64_t rbp_offset() const { return static_cast<int64_t>(bits_ << 32) >> 40; }
  int64_t cfa_offset() const { return static_cast<int64_t>(bits_) >> 32; }

 private:
  static constexpr uint64_t kHasRbp = 8;

  uint64_t bits_ = 0;
};

// Rows by return address, shared by all threads without a lock. Both words of an entry are written
// on their own; a reader that gets halves of two entries sees that they do not fit.
class RowCache {
 public:
  VRAMSCOPE_ALWAYS_INLINE UnwindRow Find(uintptr_t pc, uint64_t generation) const {
    const uint64_t key = Key(pc, generation);
    const Bucket& bucket = BucketOf(pc);
    for (const Entry& entry : bucket.entries) {
      const uint64_t bits = entry.bits.load(std::memory_order_relaxed);
      if (VRAMSCOPE_LIKELY((entry.check.load(std::memory_order_relaxed) ^ bits) == key))
        return UnwindRow(bits);
    }
    return UnwindRow();
  }
  void Insert(uintptr_t pc, uint64_t generation, UnwindRow row);

 private:
  struct Entry {
    std::atomic<uint64_t> check;  // Key() ^ bits
    std::atomic<uint64_t> bits;
  };
  struct alignas(64) Bucket {
    Entry entries[4];
  };
  static constexpr uint32_t kBucketBits = 12;

  static uint64_t Key(uintptr_t pc, uint64_t generation) {
    return pc ^ generation * 0x9e3779b97f4a7c15u;
  }
  const Bucket& BucketOf(uintptr_t pc) const {
    return buckets_[pc * 0x9e3779b97f4a7c15u >> (64 - kBucketBits)];
  }

  Bucket buckets_[1u << kBucketBits];
};

}  // namespace vramscope::probe
