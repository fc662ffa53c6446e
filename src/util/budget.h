// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "util/status.h"

namespace vramscope::util {

// What a reader may make out of a file, in bytes of memory, bounded by the file's real size: what a
// file says of itself (numbers of rows, sizes of gaps, what a frame inflates to) is anybody's
// claim, and a few KiB of it must not become GiB. Whoever reads asks here before it makes anything:
//
//   util::Budget budget(file_bytes);
//   if (!budget.Charge("rows", count, sizeof(Row)))
//     return budget.Refusal(path);
//
// Once over, it stays over: code in the middle of a loop can go on without looking, as long as
// somebody returns Refusal() in the end. Not thread-safe.
class Budget {
 public:
  // A recording of one page has its names too; a large one inflates by less than this on average.
  static constexpr uint64_t kBaseBytes = uint64_t{128} << 20;
  static constexpr uint64_t kBytesPerFileByte = 64;

  explicit Budget(uint64_t file_bytes,
                  uint64_t base_bytes = kBaseBytes,
                  uint64_t bytes_per_file_byte = kBytesPerFileByte);

  // The smallest file that has a budget of so much.
  static constexpr uint64_t FileBytesFor(uint64_t bytes,
                                         uint64_t base_bytes = kBaseBytes,
                                         uint64_t bytes_per_file_byte = kBytesPerFileByte) {
    const uint64_t growing = bytes - (bytes < base_bytes ? bytes : base_bytes);
    return growing / bytes_per_file_byte + (growing % bytes_per_file_byte != 0 ? 1 : 0);
  }

  // Takes count times bytes_each of what is left for `what`: the plural that the refusal names, a
  // literal. False where that is more than there is.
  [[nodiscard]] bool Charge(const char* what, uint64_t count, uint64_t bytes_each = 1) {
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(count, bytes_each, &bytes))
      bytes = UINT64_MAX;
    if (bytes <= left_bytes_) [[likely]] {
      left_bytes_ -= bytes;
      return true;
    }
    return GoOver(what, count);
  }
  bool IsOver() const { return over_what_ != nullptr; }
  uint64_t left_bytes() const { return left_bytes_; }

  // The error for people. Only where it is over.
  Status Refusal(const std::string& path) const;

 private:
  bool GoOver(const char* what, uint64_t count);

  uint64_t file_bytes_;
  uint64_t limit_bytes_;
  uint64_t left_bytes_;
  const char* over_what_ = nullptr;  // what went beyond it first
  uint64_t over_count_ = 0;          // of those at once
};

}  // namespace vramscope::util
