// SPDX-License-Identifier: Apache-2.0
#include "util/budget.h"

#include "util/size_text.h"

namespace vramscope::util {

Budget::Budget(uint64_t file_bytes, uint64_t base_bytes, uint64_t bytes_per_file_byte)
    : file_bytes_(file_bytes) {
  uint64_t growing = 0;
  if (__builtin_mul_overflow(file_bytes, bytes_per_file_byte, &growing) ||
      __builtin_add_overflow(growing, base_bytes, &limit_bytes_)) {
    limit_bytes_ = UINT64_MAX;
  }
  left_bytes_ = limit_bytes_;
}

bool Budget::GoOver(const char* what, uint64_t count) {
  if (over_what_ == nullptr) {
    over_what_ = what;
    over_count_ = count;
  }
  left_bytes_ = 0;
  return false;
}

Status Budget::Refusal(const std::string& path) const {
  // One at a time, it is the sum that is too much; many at once are a claim worth naming.
  const std::string claim =
      over_count_ > 1 ? std::to_string(over_count_) + " " + over_what_ : over_what_;
  return Status::Error(path + ": its " + claim + " would take more than " +
                       FormatBytes(limit_bytes_) + " of memory, too much for a file of " +
                       FormatBytes(file_bytes_) + ": it is damaged, or made to do harm");
}

}  // namespace vramscope::util
