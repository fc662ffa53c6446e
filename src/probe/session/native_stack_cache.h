// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/compiler.h"

namespace vramscope::probe {

// Native stacks that one thread walked before. Each has the words of the stack that decided the
// walk: return addresses, and frame pointers that were followed. If all of these words are the same
// again, the walk is the same and is skipped.
//
// Lives in zeroed memory. Not thread-safe.
class NativeStackCache {
 public:
  static constexpr uint32_t kMaxReads = 48;

  struct Read {
    uintptr_t address;
    uint64_t value;
  };
  struct Walk {
    uintptr_t rsp;        // where it began
    uintptr_t rbp;        // there; 0 if it did not matter
    uintptr_t stack_end;  // of the thread's own stack: what is between can be read
    uint64_t generation;  // CodeGeneration()
    uint32_t read_count;
    uint32_t id;
    Read reads[kMaxReads];
  };

  // The id that was kept for a walk from there, or 0.
  VRAMSCOPE_ALWAYS_INLINE uint32_t Find(uintptr_t rsp,
                                        uintptr_t rbp,
                                        uintptr_t stack_end,
                                        uint64_t generation) const {
    for (const Walk& walk : sets_[SetOf(rsp)]) {
      if (walk.rsp == rsp && walk.stack_end == stack_end && walk.generation == generation &&
          (walk.rbp == 0 || walk.rbp == rbp) && Holds(walk)) {
        return walk.id;
      }
    }
    return 0;
  }

  // A place for a walk from there, now and then in place of one that was kept: where all stacks
  // differ, keeping them costs more than it gives. Else null.
  Walk* Place(uintptr_t rsp) {
    auto& set = sets_[SetOf(rsp)];
    for (Walk& walk : set) {
      if (walk.rsp == 0)
        return &walk;
    }
    ++next_;
    return next_ % kKeptOneIn == 0 ? &set[next_ / kKeptOneIn % kWays] : nullptr;
  }

  // A walk of one thread is not valid for another thread's stack.
  void Clear() {
    for (auto& set : sets_) {
      for (Walk& walk : set) {
        if (walk.rsp != 0)
          walk.rsp = 0;
      }
    }
  }

 private:
  static constexpr uint32_t kSets = 16;
  static constexpr uint32_t kWays = 4;
  static constexpr uint32_t kKeptOneIn = 8;

  static uint32_t SetOf(uintptr_t rsp) {
    return static_cast<uint32_t>((rsp * 0x9e3779b97f4a7c15u) >> 60) & (kSets - 1);
  }
  VRAMSCOPE_ALWAYS_INLINE static bool Holds(const Walk& walk) {
    const Read* const end = walk.reads + walk.read_count;
    for (const Read* read = walk.reads; read != end; ++read) {
      if (*reinterpret_cast<const volatile uint64_t*>(read->address) != read->value)
        return false;
    }
    return true;
  }

  Walk sets_[kSets][kWays];
  uint32_t next_;
};

}  // namespace vramscope::probe
