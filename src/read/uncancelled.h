// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

namespace vramscope::read {

// A thread that is cancelled ends by an exception, which must not meet ours.
class Uncancelled {
 public:
  Uncancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_ = 0;
};

}  // namespace vramscope::read
