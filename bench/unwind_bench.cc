// SPDX-License-Identifier: Apache-2.0
// Native stacks that are known already: the probe's walk beside the C library's backtrace(), from
// the same place, at stacks of about 15, 30 and 60 frames.
#include <benchmark/benchmark.h>
#include <execinfo.h>

#include <cstdint>

#include "probe/stack/native/unwind.h"

namespace {

using namespace vramscope::probe;

size_t Walk() {
  uintptr_t pcs[kMaxNativeDepth];
  const NativeWalk walk = WalkNativeStack(WalkFromHere(), pcs, kMaxNativeDepth);
  benchmark::DoNotOptimize(pcs);
  return walk.depth;
}

size_t Backtrace() {
  void* pcs[kMaxNativeDepth];
  const int depth = backtrace(pcs, static_cast<int>(kMaxNativeDepth));
  benchmark::DoNotOptimize(pcs);
  return static_cast<size_t>(depth);
}

// Calls of different functions, as a program has them: each is a return address of its own.
template <int kLeft>
__attribute__((noinline)) void AtDepth(size_t wanted,
                                       benchmark::State* state,
                                       size_t (*capture)()) {
  size_t depth = capture();
  if constexpr (kLeft > 0) {
    if (depth < wanted) {
      AtDepth<kLeft - 1>(wanted, state, capture);
      asm volatile("" ::: "memory");
      return;
    }
  }
  for (auto _ : *state)
    depth = capture();
  state->counters["frames"] = static_cast<double>(depth);
  state->counters["per_frame"] =
      benchmark::Counter(static_cast<double>(depth), benchmark::Counter::kIsIterationInvariantRate |
                                                         benchmark::Counter::kInvert);
}

void KnownStack(benchmark::State& state, size_t (*capture)()) {
  LoadNativeStacks();
  AtDepth<64>(static_cast<size_t>(state.range(0)), &state, capture);
}

BENCHMARK_CAPTURE(KnownStack, walk, Walk)->Arg(15)->Arg(30)->Arg(60);
BENCHMARK_CAPTURE(KnownStack, backtrace, Backtrace)->Arg(15)->Arg(30)->Arg(60);

}  // namespace
