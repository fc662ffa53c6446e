// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace vramscope::probe::cuda {

// Since when (ticks) a figure may have changed that could not be read then: another thread was just
// reading it, or a stream was captured. Safe in any thread.
class StaleSince {
 public:
  // Keeps the earliest.
  void Note(uint64_t since) {
    uint64_t first = since_.load(std::memory_order_seq_cst);
    while ((first == 0 || since < first) &&
           !since_.compare_exchange_weak(first, since, std::memory_order_seq_cst)) {
    }
  }
  // The earlier of that and `since`.
  uint64_t Earliest(uint64_t since) const {
    const uint64_t first = since_.load(std::memory_order_seq_cst);
    return first != 0 && first < since ? first : since;
  }
  bool IsSet() const { return since_.load(std::memory_order_seq_cst) != 0; }
  // Whoever reads the figure now takes it: the earlier of that and `since`.
  uint64_t Take(uint64_t since) {
    const uint64_t first = since_.exchange(0, std::memory_order_seq_cst);
    return first != 0 && first < since ? first : since;
  }
  void Clear() { since_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> since_{0};
};

}  // namespace vramscope::probe::cuda
