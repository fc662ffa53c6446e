// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "base/compiler.h"

namespace vramscope::probe {

// Looks for what says where the first thread's stack ends. Once, when the library is loaded.
void LoadStackBounds();

// Whether the 8 bytes at `address` can be read: a system call, and never a fault.
bool IsReadable(uintptr_t address);

// The memory that one walk may read: the calling thread's stack from the walk's stack pointer
// upwards. On the thread's own stack, which stays as long as the thread does, its end is found once
// and reads cost a comparison. On any other (signal handlers, coroutines) the kernel is asked for
// each page that a walk comes to, in a way that a wrong address is an error and not a fault.
class StackWindow {
 public:
  VRAMSCOPE_ALWAYS_INLINE explicit StackWindow(uintptr_t stack_pointer)
      : begin_(stack_pointer), low_(stack_pointer) {
    const Known& known = t_known;
    if (VRAMSCOPE_LIKELY(stack_pointer - known.low < known.high - known.low))
      high_ = known.high;
    else
      high_ = FindEnd(stack_pointer);
    is_own_ = high_ != low_;
    span_ = Span();
  }

  // The end of the calling thread's own stack, if it is known and `stack_pointer` is on it;
  // otherwise 0.
  VRAMSCOPE_ALWAYS_INLINE static uintptr_t OwnEnd(uintptr_t stack_pointer) {
    const Known& known = t_known;
    return stack_pointer - known.low < known.high - known.low ? known.high : 0;
  }

  // The word at `address`. False if the stack is not, or cannot be read.
  VRAMSCOPE_ALWAYS_INLINE bool Read(uintptr_t address, uint64_t* value) {
    if (VRAMSCOPE_UNLIKELY(address - low_ >= span_) && !Probe(address))
      return false;
    std::memcpy(value, reinterpret_cast<const void*>(address), sizeof *value);
    return true;
  }

 private:
  // The thread's own stack; low: the lowest address seen so far.
  struct Known {
    uintptr_t low;
    uintptr_t high;
    uintptr_t gap;  // not readable, though it lies between a stack pointer and the end
  };
  static constinit VRAMSCOPE_TLS Known t_known;

  // The end of the stack, where it is the thread's own one; else `stack_pointer`.
  VRAMSCOPE_NOINLINE static uintptr_t FindEnd(uintptr_t stack_pointer);
  // Adds the page of `address`, or moves there.
  VRAMSCOPE_NOINLINE bool Probe(uintptr_t address);

  uintptr_t Span() const {
    return high_ - low_ >= sizeof(uint64_t) ? high_ - low_ - sizeof(uint64_t) + 1 : 0;
  }

  uintptr_t begin_;
  uintptr_t low_;
  uintptr_t high_;
  uintptr_t span_;  // a word can be read where it is less than this above low_
  bool is_own_;
};

}  // namespace vramscope::probe
