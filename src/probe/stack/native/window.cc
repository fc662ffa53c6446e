// SPDX-License-Identifier: Apache-2.0
#include "probe/stack/native/window.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "probe/platform/dynamic.h"

namespace vramscope::probe {

constinit VRAMSCOPE_TLS StackWindow::Known StackWindow::t_known{};

namespace {

constexpr uintptr_t kPageBytes = 4096;
// Beyond this a stack is looked at page by page, however it came to be so large.
constexpr uintptr_t kMaxStackBytes = uintptr_t{16} << 20;

constinit const void* const* g_main_stack_end = nullptr;

uintptr_t PageOf(uintptr_t address) {
  return address & ~(kPageBytes - 1);
}

bool ArePagesReadable(uintptr_t begin, uintptr_t end, uintptr_t* gap) {
  for (uintptr_t page = PageOf(begin); page < end; page += kPageBytes) {
    if (!IsReadable(page)) {
      *gap = page;
      return false;
    }
  }
  return true;
}

// The control block of a thread lies at the upper end of the stack that pthread_create() was given
// or made; the first thread's is elsewhere.
uintptr_t ThreadControlBlock() {
#if defined(__x86_64__)
  uintptr_t address = 0;
  asm("movq %%fs:0, %0" : "=r"(address));
  return address;
#else
  return 0;
#endif
}

}  // namespace

// The kernel copies the new signal mask before it checks the operation, which is invalid: EFAULT
// means that the 8 bytes cannot be read, EINVAL that they can.
bool IsReadable(uintptr_t address) {
  const int saved_errno = errno;
  constexpr int kNothing = -1;
  const long result = syscall(SYS_rt_sigprocmask, kNothing, address, nullptr, sizeof(uint64_t));
  const bool readable = result == 0 || errno == EINVAL;
  errno = saved_errno;
  return readable;
}

void LoadStackBounds() {
  g_main_stack_end = static_cast<const void* const*>(RealDlsym(RTLD_DEFAULT, "__libc_stack_end"));
}

uintptr_t StackWindow::FindEnd(uintptr_t stack_pointer) {
  uintptr_t end = ThreadControlBlock();
  const auto main_end =
      g_main_stack_end != nullptr ? reinterpret_cast<uintptr_t>(*g_main_stack_end) : 0;
  if (end <= stack_pointer || (main_end > stack_pointer && main_end < end))
    end = main_end;
  Known& known = t_known;
  if (end <= stack_pointer || end - stack_pointer > kMaxStackBytes ||
      (known.gap > stack_pointer && known.gap < end)) {
    return stack_pointer;
  }
  // Stacks have a page at their end that cannot be read, so what can be read all the way is one.
  const bool is_deeper = known.high == end && stack_pointer < known.low;
  if (!ArePagesReadable(stack_pointer, is_deeper ? known.low : end, &known.gap))
    return stack_pointer;
  known.low = PageOf(stack_pointer);
  known.high = end;
  return end;
}

bool StackWindow::Probe(uintptr_t address) {
  if (is_own_ || address < begin_ || address - begin_ >= kMaxStackBytes ||
      address % sizeof(uint64_t) != 0 || !IsReadable(address)) {
    return false;
  }
  const uintptr_t page = PageOf(address);
  if (page != high_)
    low_ = page > begin_ ? page : begin_;
  high_ = page + kPageBytes;
  span_ = Span();
  return true;
}

}  // namespace vramscope::probe
