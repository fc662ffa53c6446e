// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace vramscope::probe {

// While it lives no signal handler of the program runs in this thread, and afterwards errno is what
// it was. For whatever must not be left half done: a handler can leave by longjmp, and a thread can
// be cancelled. By the system call's number, since the C library keeps two signals of its own,
// cancellation among them, out of reach. Faults are not held back: a sandbox answers system calls
// in a handler of SIGSYS.
class SystemCalls {
 public:
  SystemCalls() : errno_(errno) {
    uint64_t held = ~uint64_t{0};
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS})
      held &= ~(uint64_t{1} << (fault - 1));
    is_held_ = syscall(SYS_rt_sigprocmask, SIG_SETMASK, &held, &mask_, sizeof mask_) == 0;
  }
  ~SystemCalls() {
    if (is_held_)
      syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask_, nullptr, sizeof mask_);
    errno = errno_;
  }
  SystemCalls(const SystemCalls&) = delete;
  SystemCalls& operator=(const SystemCalls&) = delete;

 private:
  const int errno_;
  uint64_t mask_ = 0;
  bool is_held_ = false;
};

}  // namespace vramscope::probe
