// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "util/size_text.h"
#include "util/status.h"

namespace vramscope::util {

// Bounds the memory that a reader uses for a file by the file's real size. Sizes in a file (numbers
// of rows, sizes of gaps, what a frame inflates to) can be false, and a few KiB must not become
// GiB. A reader asks here before it allocates:
//
//   util::Budget budget(file_bytes);
//   if (!budget.Charge("rows", count, sizeof(Row)))
//     return budget.Refusal(path);
//
// Once over, it stays over: a loop need not check each call, if its caller returns Refusal() in the
// end. Not thread-safe.
class Budget {
 public:
  // A one-page recording needs this much for its names; a large one inflates by less than the
  // second on average.
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
  // literal. False if that is more than there is.
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

inline Budget::Budget(uint64_t file_bytes, uint64_t base_bytes, uint64_t bytes_per_file_byte)
    : file_bytes_(file_bytes) {
  uint64_t growing = 0;
  if (__builtin_mul_overflow(file_bytes, bytes_per_file_byte, &growing) ||
      __builtin_add_overflow(growing, base_bytes, &limit_bytes_)) {
    limit_bytes_ = UINT64_MAX;
  }
  left_bytes_ = limit_bytes_;
}

inline bool Budget::GoOver(const char* what, uint64_t count) {
  if (over_what_ == nullptr) {
    over_what_ = what;
    over_count_ = count;
  }
  left_bytes_ = 0;
  return false;
}

inline Status Budget::Refusal(const std::string& path) const {
  // Single charges exceed the budget by their sum; a large count is a claim worth naming.
  const std::string claim =
      over_count_ > 1 ? std::to_string(over_count_) + " " + over_what_ : over_what_;
  return Status::Error(path + ": its " + claim + " would take more than " +
                       FormatBytes(limit_bytes_) + " of memory, too much for a file of " +
                       FormatBytes(file_bytes_) + ": it is damaged or malicious");
}

}  // namespace vramscope::util
