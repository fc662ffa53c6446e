// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <link.h>

#include <cstddef>
#include <cstdint>

#include "base/compiler.h"
#include "probe/session/native_stack_cache.h"
#include "probe/session/source.h"
#include "probe/stack/native/cfi.h"

// Native stacks of the calling thread. On x86-64 it reads the binaries' own unwinding tables and
// remembers the result for each address, so that a known stack costs some nanoseconds a frame;
// elsewhere it calls the C library's backtrace().
//
// Nothing is allocated. No lock is taken, but the loader's for a moment: where the C library is
// older than 2.35, at addresses that are new, and when a library is opened.
namespace vramscope::probe {

inline constexpr size_t kMaxNativeDepth = 96;

enum class WalkEnd {
  kOutermost,   // where the thread began
  kDepthLimit,  // there are more frames than were asked for
  kLost,        // code without unwinding information, or damaged
};

struct NativeWalk {
  size_t depth;
  WalkEnd end;
};

// The registers at the start of a walk.
struct WalkStart {
#if defined(__x86_64__)
  uintptr_t pc, rsp, rbp, rbx, r12, r13, r14, r15;
#endif
};

// In the function that is to be the innermost; its frame must exist until the walk is over.
VRAMSCOPE_ALWAYS_INLINE WalkStart WalkFromHere() {
  WalkStart start;
#if defined(__x86_64__)
  asm volatile(
      "leaq 0(%%rip), %%rax\n\t"
      "movq %%rax, %0\n\t"
      "movq %%rsp, %1\n\t"
      "movq %%rbp, %2\n\t"
      "movq %%rbx, %3\n\t"
      "movq %%r12, %4\n\t"
      "movq %%r13, %5\n\t"
      "movq %%r14, %6\n\t"
      "movq %%r15, %7"
      : "=m"(start.pc), "=m"(start.rsp), "=m"(start.rbp), "=m"(start.rbx), "=m"(start.r12),
        "=m"(start.r13), "=m"(start.r14), "=m"(start.r15)
      :
      : "rax");
#endif
  return start;
}

// Writes the return addresses from there on outwards, `capacity` at most.
NativeWalk WalkNativeStack(const WalkStart& start, uintptr_t* pcs, size_t capacity);

// The id that was kept for such a walk, 0 if there is none.
uint32_t FindKnownWalk(const NativeStackCache& known, const WalkStart& start);
// Keeps it, where the same words on the stack will lead the same way.
void KeepWalk(NativeStackCache* known, const WalkStart& start, uint32_t id);

// Grows when a walk comes to a binary for the first time, or that may have been replaced.
uint64_t SeenBinaries();

// Once, when this library is loaded.
void LoadNativeStacks();
// Just before a library is loaded.
extern const Source kNativeStackSource;

// ---- which binary code belongs to, and when that may have changed

// Looks for the C library's lock-free search. Once, when this library is loaded.
void LoadModuleSearch();

// The binary that `pc` lies in; false for code that no file has. With glibc 2.35 or newer it takes
// no lock and is safe in signal handlers; before, it takes the loader's lock.
bool FindModule(uintptr_t pc, CodeModule* module);

// The result of dl_iterate_phdr for that binary, by the same search: `info` has no headers if the
// code is not from a file. False if only the loader's list can say.
bool DescribeModule(uintptr_t pc, dl_phdr_info* info);

// Grows when FindModule() comes to a binary for the first time.
uint64_t SeenModules();
// Grows when binaries were unloaded: cached facts about code may then be about other code.
uint64_t CodeGeneration();
// Must be called before a library is loaded: new code can only come to the addresses of code that
// was unloaded before. Takes the loader's lock for a moment.
void NoteUnloadedModules();

}  // namespace vramscope::probe
