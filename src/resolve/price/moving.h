// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "resolve/price/book.h"
#include "resolve/price/checkpoints.h"
#include "resolve/price/price.h"

namespace vramscope::resolve::price {

// What it takes to move the memory of a process to the host and back. Measured on an H200: while a
// call does so the driver has 4 MiB more for the process, which are in NVML's figure of it; and the
// kernel module up to 3.25 MiB, a little longer, which are in none.
class Moving {
 public:
  Moving(const DeviceInput& input, const Checkpoints& checkpoints, Book* book)
      : input_(input), checkpoints_(checkpoints), book_(*book) {}

  // No call is under way but those that move memory, and the device has `bytes` more than the rows
  // say. Returns what of that is due to a move.
  int64_t OnSample(const When& sample, int64_t bytes);
  // A call that moves memory ended, or the sample that met none is over: what it took may be gone
  // since then, and only the next sample tells. Returns the change, in bytes.
  int64_t End(const When& when);
  // Such a call was under way at the last sample.
  bool goes_on() const { return goes_on_; }

 private:
  // The process whose memory moves then: kNone where it is none, or several.
  void FindMove(const When& sample);
  void Set(uint32_t* row, uint32_t process, const When& when, int64_t bytes);

  const DeviceInput& input_;
  const Checkpoints& checkpoints_;
  Book& book_;
  uint32_t moved_ = kNone;  // the process whose memory moves at the last sample
  uint32_t row_ = kNone;    // of its account
  uint32_t rm_row_ = kNone;
  bool goes_on_ = false;
};

}  // namespace vramscope::resolve::price
