// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/compiler.h"
#include "probe/stack/python/api.h"

// Autograd numbers its nodes, each thread from 0 on. The number that a thread's next node will get,
// recorded with what forward allocates, and the number of the node under way, recorded with what
// backward allocates, join the two without a hook on any tensor.
namespace vramscope::probe {

// Where PyTorch has its C++ functions.
inline constexpr char kTorchLibrary[] = "libtorch_cpu.so";

struct AutogradState {
  std::atomic<uint64_t (*)()> peek{nullptr};          // at::sequence_number::peek
  std::atomic<const char** (*)()> current{nullptr};   // where this thread keeps its node under way
  std::atomic<void (*)(void*)> get_current{nullptr};  // torch::autograd::get_current_node
  std::atomic<bool> node_seen{false};                 // one was looked at and is what it should be
  uint32_t sequence = 0;                              // Node: its number
  // Where libtorch_cpu keeps each thread's next number; module 0: not known.
  size_t tls_module = 0;
  size_t tls_next = 0;
};
extern constinit AutogradState g_autograd;

// The same two places in this thread, null until it has asked.
struct AutogradThread {
  const uint64_t* next;
  const char** node;
};
extern constinit VRAMSCOPE_TLS AutogradThread t_autograd;

// Nodes that accumulate a gradient have the largest number that there is. They are recorded with
// one that no other node gets to, and that is short in the file.
inline constexpr uint64_t kUnnumberedNode = (uint64_t{1} << 41) - 1;

// What is known of the node that this thread evaluates.
struct AutogradNode {
  uint64_t number;   // as BlockAlloc.sequence says it, 0 where not known
  const void* type;  // tells nodes of different classes apart
};

// `samples`: a list of tuples (grad_fn, its number) of nodes that this thread made one after
// another, the newest last. 2: found, 1: forward only, 0: neither.
int CalibrateAutograd(Object samples);

AutogradNode CurrentAutogradNodeSlow(bool runs_python);

VRAMSCOPE_ALWAYS_INLINE AutogradNode CurrentAutogradNode(bool runs_python) {
  if (VRAMSCOPE_UNLIKELY(t_autograd.next == nullptr)) {
    return g_autograd.peek.load(std::memory_order_acquire) != nullptr
               ? CurrentAutogradNodeSlow(runs_python)
               : AutogradNode{};
  }
  const char* const node = *t_autograd.node;
  if (node == nullptr)
    return {runs_python ? 2 * *t_autograd.next + 1 : 0, nullptr};
  if (VRAMSCOPE_UNLIKELY(!g_autograd.node_seen.load(std::memory_order_relaxed)))
    return CurrentAutogradNodeSlow(runs_python);
  const auto number = ReadAt<uint64_t>(node, g_autograd.sequence);
  return {2 * (number < kUnnumberedNode ? number : kUnnumberedNode) + 2,
          ReadAt<const void*>(node, 0)};
}

}  // namespace vramscope::probe
