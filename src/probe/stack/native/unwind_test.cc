// SPDX-License-Identifier: Apache-2.0
#include "probe/stack/native/unwind.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "probe/session/tables.h"

// The walk is held against backtrace(), which is libgcc's, in every place that is hard to walk
// from.
namespace vramscope::probe {
namespace {

constexpr size_t kRoom = 256;

// Counted, as many comparisons are made in signal handlers.
thread_local NativeStackCache g_known_walks;

struct Tally {
  size_t walks;
  size_t known;
  size_t different;
  size_t deepest;
  WalkEnd last_end;
};
Tally g_tally;

// From the caller on. A walk that is known must be the one that is walked.
__attribute__((noinline)) NativeWalk Walk(uintptr_t* pcs, size_t capacity) {
  const WalkStart start = WalkFromHere();
  const NativeWalk walk = WalkNativeStack(start, pcs, capacity);
  uint64_t hash = 1;
  for (size_t i = 0; i < walk.depth; ++i)
    hash = HashMix(hash, pcs[i]);
  const auto id = static_cast<uint32_t>(hash) | 1;
  const uint32_t known = FindKnownWalk(g_known_walks, start);
  g_tally.known += known != 0 ? 1 : 0;
  g_tally.different += known != 0 && known != id ? 1 : 0;
  if (known == 0)
    KeepWalk(&g_known_walks, start, id);
  return walk;
}

__attribute__((noinline)) void Compare() {
  void* theirs[kRoom];
  uintptr_t ours[kRoom];
  const auto expected = static_cast<size_t>(backtrace(theirs, kRoom));
  const NativeWalk walk = Walk(ours, kRoom);
  // Both begin in this function, at two places of it.
  bool same = walk.depth == expected;
  for (size_t i = 1; same && i < expected; ++i)
    same = ours[i] == reinterpret_cast<uintptr_t>(theirs[i]);
  ++g_tally.walks;
  g_tally.different += same ? 0 : 1;
  g_tally.deepest = std::max(g_tally.deepest, walk.depth);
  g_tally.last_end = walk.end;
  asm volatile("" ::: "memory");  // no tail call
}

class NativeWalkTest : public testing::Test {
 protected:
  void SetUp() override {
    LoadNativeStacks();
    Compare();  // libgcc allocates the first time
    g_tally = {};
  }
  static void ExpectSame(size_t walks) {
    EXPECT_EQ(g_tally.walks, walks);
    EXPECT_EQ(g_tally.different, 0u);
  }
};

int CompareInts(const void* left, const void* right) {
  Compare();
  const int a = *static_cast<const int*>(left), b = *static_cast<const int*>(right);
  return a < b ? -1 : a > b ? 1 : 0;
}

TEST_F(NativeWalkTest, GoesThroughCallbacksOfTheCLibrary) {
  int values[] = {5, 3, 9, 1, 7};
  qsort(values, 5, sizeof values[0], CompareInts);
  const int wanted = 7;
  EXPECT_NE(bsearch(&wanted, values, 5, sizeof values[0], CompareInts), nullptr);
  EXPECT_GT(g_tally.walks, 6u);
  ExpectSame(g_tally.walks);
  EXPECT_EQ(g_tally.last_end, WalkEnd::kOutermost);
}

TEST_F(NativeWalkTest, KnowsAWalkAgain) {
  for (int i = 0; i < 10; ++i)
    Compare();
  EXPECT_EQ(g_tally.known, 9u);
  // From elsewhere in this function: the stack pointer is the same, and the way is not.
  Compare();
  EXPECT_EQ(g_tally.known, 9u);
  ExpectSame(11);
}

// Each takes its stack in its own way.
__attribute__((noinline)) int WithAlloca(size_t bytes) {
  auto* const memory = static_cast<volatile char*>(alloca(bytes));
  memory[0] = 1;
  Compare();
  return memory[bytes - 1];
}

__attribute__((noinline)) int WithAlignment(size_t bytes) {
  alignas(64) volatile char aligned[192];
  auto* const memory = static_cast<volatile char*>(alloca(bytes));
  aligned[0] = 1;
  memory[0] = 1;
  Compare();
  return aligned[1] + memory[bytes - 1];
}

__attribute__((noinline)) int WithLargeFrame() {
  volatile char memory[100000];
  memory[0] = 1;
  Compare();
  return memory[99999];
}

__attribute__((noinline, optimize("no-omit-frame-pointer"))) int WithFramePointer() {
  Compare();
  return WithAlloca(100) + 1;
}

__attribute__((noinline)) int
WithManyArguments(int a, int b, int c, int d, int e, int f, int g, int h) {
  Compare();
  return a + b + c + d + e + f + g + h;
}

TEST_F(NativeWalkTest, KnowsEveryShapeOfAFrame) {
  for (const size_t bytes : {16u, 100u, 5000u}) {
    WithAlloca(bytes);
    WithAlignment(bytes);
  }
  WithLargeFrame();
  WithFramePointer();
  WithManyArguments(1, 2, 3, 4, 5, 6, 7, 8);
  const std::function<void(int)> recurse = [&recurse](int left) {
    Compare();
    if (left > 0)
      recurse(left - 1);
  };
  recurse(40);
  ExpectSame(6 + 1 + 2 + 1 + 41);
}

struct ComparesWhenItGoes {
  ~ComparesWhenItGoes() { Compare(); }
};

__attribute__((noinline)) void ThrowThrough(int depth) {
  ComparesWhenItGoes guard;
  if (depth == 0)
    throw depth;
  ThrowThrough(depth - 1);
}

TEST_F(NativeWalkTest, GoesOnWhileAnExceptionIsThrown) {
  try {
    ThrowThrough(5);
  } catch (int) {
    Compare();
  }
  ExpectSame(7);
}

__attribute__((noinline)) size_t Recurse(size_t left, std::span<uintptr_t> pcs, NativeWalk* walk) {
  if (left == 0)
    *walk = Walk(pcs.data(), kMaxNativeDepth);
  else
    Recurse(left - 1, pcs, walk);
  asm volatile("" ::: "memory");
  return left;
}

TEST_F(NativeWalkTest, KeepsTheInnermostFramesOfADeepStack) {
  std::array<uintptr_t, kMaxNativeDepth + 1> pcs{};
  NativeWalk walk{};
  Recurse(300, pcs, &walk);
  EXPECT_EQ(walk.depth, kMaxNativeDepth);
  EXPECT_EQ(walk.end, WalkEnd::kDepthLimit);
  EXPECT_EQ(pcs[kMaxNativeDepth], 0u);
  for (size_t i = 2; i < kMaxNativeDepth; ++i)
    EXPECT_EQ(pcs[i], pcs[1]);
  EXPECT_NE(pcs[0], pcs[1]);
}

void CompareInHandler(int) {
  Compare();
}

void Handle(int number, int flags, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ASSERT_EQ(sigaction(number, &action, nullptr), 0);
}

TEST_F(NativeWalkTest, GoesThroughSignalFrames) {
  Handle(SIGUSR1, 0, CompareInHandler);
  raise(SIGUSR1);
  ExpectSame(1);
}

TEST_F(NativeWalkTest, GoesFromAnotherSignalStackToTheThreads) {
  std::vector<char> memory(256 * 1024);
  const stack_t mine{.ss_sp = memory.data(), .ss_flags = 0, .ss_size = memory.size()};
  stack_t before{};
  ASSERT_EQ(sigaltstack(&mine, &before), 0);
  Handle(SIGUSR1, SA_ONSTACK, CompareInHandler);
  raise(SIGUSR1);
  ASSERT_EQ(sigaltstack(&before, nullptr), 0);
  ExpectSame(1);
}

#if defined(__x86_64__)

// From here to EndSteps() a signal arrives at each instruction: in prologues, epilogues, the
// linkage table and the loader's look-up of a function that is called for the first time.
asm(R"(
        .text
        .macro  SetTrapFlag name, operation, mask
        .type   \name, @function
\name:
        .cfi_startproc
        pushfq
        .cfi_adjust_cfa_offset 8
        \operation $\mask, (%rsp)
        popfq
        .cfi_adjust_cfa_offset -8
        ret
        .cfi_endproc
        .size   \name, .-\name
        .endm
        SetTrapFlag BeginSteps, orq, 0x100
        SetTrapFlag EndSteps, andq, ~0x100
)");
extern "C" {
void BeginSteps();
void EndSteps();
}

__attribute__((noinline)) int Steps(size_t bytes) {
  // Few programs call these, so that they are not bound yet where binding is lazy.
  const char* const text = "a:b";
  return WithManyArguments(1, 2, 3, 4, 5, 6, 7, 8) + static_cast<int>(strcspn(text, ":")) +
         static_cast<int>(ffsl(static_cast<long>(bytes))) + WithAlloca(bytes);
}

TEST_F(NativeWalkTest, IsRightAtEveryInstruction) {
  Handle(SIGTRAP, 0, CompareInHandler);
  BeginSteps();
  Steps(64);
  EndSteps();
  EXPECT_GT(g_tally.walks, 100u);
  ExpectSame(g_tally.walks);
}

// ---- code by hand

// Its caller is found by rbx, and nothing is where compilers put it.
asm(R"(
        .text
        .type   CallWithRbx, @function
CallWithRbx:
        .cfi_startproc
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        mov     %rsp, %rbx
        .cfi_def_cfa_register rbx
        and     $-256, %rsp
        call    *%rdi
        mov     %rbx, %rsp
        .cfi_def_cfa_register rsp
        pop     %rbx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size   CallWithRbx, .-CallWithRbx

        .type   CallUndescribed, @function
CallUndescribed:
        push    %rbp
        mov     %rsp, %rbp
        sub     $48, %rsp
        call    *%rdi
        leave
        ret
        .size   CallUndescribed, .-CallUndescribed

        .type   CallWithExpressions, @function
CallWithExpressions:
        .cfi_startproc
        push    %rbp
        # def_cfa_expression: breg7(rsp) 8, lit8, plus
        .cfi_escape 0x0f, 0x04, 0x77, 0x08, 0x38, 0x22
        # rbp: val_expression of the word at rsp
        .cfi_escape 0x16, 0x06, 0x03, 0x77, 0x00, 0x06
        mov     $0, %rbp
        call    *%rdi
        pop     %rbp
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
        .cfi_endproc
        .size   CallWithExpressions, .-CallWithExpressions
)");
extern "C" {
void CallWithRbx(void (*)());
void CallUndescribed(void (*)());
void CallWithExpressions(void (*)());
}

void CompareBehindRbx() {
  CallWithRbx(Compare);
}

TEST_F(NativeWalkTest, FollowsOtherRegisters) {
  CallWithRbx(Compare);
  CallWithExpressions(Compare);
  CallWithExpressions(CompareBehindRbx);
  CallWithRbx([] { CallWithRbx(Compare); });
  ExpectSame(4);
}

NativeWalk g_walk;

__attribute__((noinline)) void WalkOnly() {
  uintptr_t pcs[kRoom];
  g_walk = Walk(pcs, kRoom);
  asm volatile("" ::: "memory");
}

TEST_F(NativeWalkTest, TakesTheFramePointerOfCodeWithoutTables) {
  WalkOnly();
  const size_t depth = g_walk.depth;
  CallUndescribed(WalkOnly);
  EXPECT_EQ(g_walk.depth, depth + 1);
  EXPECT_EQ(g_walk.end, WalkEnd::kOutermost);
}

class MachineCode {
 public:
  explicit MachineCode(std::span<const uint8_t> bytes) {
    memory_ = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memcpy(memory_, bytes.data(), bytes.size());
    mprotect(memory_, 4096, PROT_READ | PROT_EXEC);
  }
  ~MachineCode() { munmap(memory_, 4096); }
  void operator()(void (*function)()) const {
    reinterpret_cast<void (*)(void (*)())>(memory_)(function);
  }

 private:
  void* memory_;
};

TEST_F(NativeWalkTest, GoesThroughCompiledCodeWithAFramePointer) {
  WalkOnly();
  const size_t depth = g_walk.depth;
  // push rbp; mov rbp, rsp; call rdi; pop rbp; ret
  const MachineCode code({{0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3}});
  code(WalkOnly);
  EXPECT_EQ(g_walk.depth, depth + 1);
  EXPECT_EQ(g_walk.end, WalkEnd::kOutermost);
}

TEST_F(NativeWalkTest, StopsAtCodeThatSaysNothing) {
  // rbp is not a frame pointer here: 1; unaligned; its own address; an unreadable address.
  for (const uint64_t rbp :
       {uint64_t{1}, uint64_t{0x7fff00000003}, uint64_t{0}, uint64_t{0x1000}}) {
    // push rbp; movabs rbp, value; call rdi; pop rbp; ret
    std::vector<uint8_t> bytes{0x55, 0x48, 0xbd, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd7, 0x5d, 0xc3};
    std::memcpy(bytes.data() + 3, &rbp, sizeof rbp);
    const MachineCode code(bytes);
    code(WalkOnly);
    EXPECT_EQ(g_walk.end, WalkEnd::kLost);
    EXPECT_EQ(g_walk.depth, 2u) << rbp;
  }
}

TEST_F(NativeWalkTest, DoesNotBelieveARegisterThatPointsIntoTheStack) {
  // push rbp; lea rbp, [rsp - 0x18]; call rdi; pop rbp; ret. There, the return address of
  // WalkOnly's callee lies, or whatever was left.
  const MachineCode below({{0x55, 0x48, 0x8d, 0x6c, 0x24, 0xe8, 0xff, 0xd7, 0x5d, 0xc3}});
  below(WalkOnly);
  EXPECT_EQ(g_walk.end, WalkEnd::kLost);
  EXPECT_EQ(g_walk.depth, 2u);
}

#endif

// ---- other stacks

void* CompareInThread(void*) {
  Compare();
  WithLargeFrame();
  return nullptr;
}

TEST_F(NativeWalkTest, KnowsThreadsStacks) {
  for (const bool own_memory : {false, true}) {
    std::vector<char> memory(1 << 20);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (own_memory)
      pthread_attr_setstack(&attributes, memory.data(), memory.size());
    else
      pthread_attr_setstacksize(&attributes, 256 * 1024);
    pthread_t thread;
    ASSERT_EQ(pthread_create(&thread, &attributes, CompareInThread, nullptr), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
  }
  ExpectSame(4);
  EXPECT_EQ(g_tally.last_end, WalkEnd::kOutermost);
}

ucontext_t g_main_context;
void RunCoroutine() {
  Compare();
  WithLargeFrame();
}

// Between two pages that cannot be read.
void RunInNewCoroutine() {
  constexpr size_t kBytes = 256 * 1024, kGuard = 4096;
  auto* const memory = static_cast<char*>(
      mmap(nullptr, kBytes + 2 * kGuard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  mprotect(memory + kGuard, kBytes, PROT_READ | PROT_WRITE);
  ucontext_t context;
  getcontext(&context);
  context.uc_stack = {.ss_sp = memory + kGuard, .ss_flags = 0, .ss_size = kBytes};
  context.uc_link = &g_main_context;
  makecontext(&context, RunCoroutine, 0);
  ASSERT_EQ(swapcontext(&g_main_context, &context), 0);
  munmap(memory, kBytes + 2 * kGuard);
}

TEST_F(NativeWalkTest, KnowsCoroutines) {
  RunInNewCoroutine();
  Compare();
  RunInNewCoroutine();
  ExpectSame(5);
}

// ---- code that goes and comes

using CallBackFn = void (*)(void (*)());

struct Library {
  void* handle = nullptr;
  CallBackFn call_back = nullptr;
};

Library Load(const char* path) {
  kNativeStackSource.opening({});
  Library library;
  library.handle = dlopen(path, RTLD_NOW);
  if (library.handle != nullptr)
    library.call_back = reinterpret_cast<CallBackFn>(dlsym(library.handle, "CallBack"));
  return library;
}

TEST_F(NativeWalkTest, ForgetsCodeThatWasUnloaded) {
  // The same code with another frame size, so that facts about one are wrong for the other.
  CallBackFn last = nullptr;
  size_t in_one_place = 0, walks = 0;
  for (int round = 0; round < 6; ++round) {
    const Library library = Load(round % 2 == 0 ? VRAMSCOPE_FRAME_SMALL : VRAMSCOPE_FRAME_LARGE);
    ASSERT_NE(library.call_back, nullptr) << dlerror();
    const uint64_t seen = SeenBinaries();
    library.call_back(Compare);
    library.call_back(Compare);
    EXPECT_NE(SeenBinaries(), seen);
    walks += 2;
    in_one_place += library.call_back == last ? 1 : 0;
    last = library.call_back;
    dlclose(library.handle);
  }
  EXPECT_GT(in_one_place, 0u) << "the second library never came to the place of the first";
  ExpectSame(walks);
}

}  // namespace
}  // namespace vramscope::probe
