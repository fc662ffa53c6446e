// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/compiler.h"
#include "probe/hooks/torch/address_set.h"
#include "probe/session/source.h"
#include "probe/session/stream.h"
#include "probe/stack/python/api.h"
#include "probe/stack/stacks.h"

// Autograd numbers its nodes, each thread from 0 on. Forward's allocations are recorded with the
// number of the thread's next node, backward's with the number of the current node. The two numbers
// join them without a hook on any tensor.
namespace vramscope::probe {

// The library with PyTorch's C++ functions.
inline constexpr char kTorchLibrary[] = "libtorch_cpu.so";

struct AutogradState {
  std::atomic<uint64_t (*)()> peek{nullptr};          // at::sequence_number::peek
  std::atomic<const char** (*)()> current{nullptr};   // where this thread keeps its node under way
  std::atomic<void (*)(void*)> get_current{nullptr};  // torch::autograd::get_current_node
  std::atomic<bool> node_seen{false};                 // one was looked at and is what it should be
  uint32_t sequence = 0;                              // Node: its number
  // The position of each thread's next number in libtorch_cpu; module 0: unknown.
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

// The node that this thread evaluates, as far as it is known.
struct AutogradNode {
  uint64_t number;   // as BlockAlloc.sequence says it, 0 if not known
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

// PyTorch's own names for memory: modules, parameters, buffers, gradients, optimizer state. A small
// Python program, agent.py, finds them; it runs when an event shows a module that is not known yet.

enum class TorchNames : int {
  kOff = 0,
  kWaiting = 1,  // the agent has not seen PyTorch whole yet
  kOn = 2,
  kBuilding = 3,  // and a model is being built or moved: its names are looked for now and then
};

using TorchSet = AddressSet<32768>;

struct TorchState {
  std::atomic<TorchNames> names{TorchNames::kOff};
  TorchSet* modules = nullptr;  // those that have a name; set before `names`
  // Memory of their parameters and buffers.
  std::atomic<TorchSet*> named{nullptr};
  // An optimizer's step names the gradients. If a second backward ends without one (before the
  // first step: the first), the agent names them.
  std::atomic<bool> in_backward{false};
  std::atomic<bool> steps_seen{false};
  std::atomic<uint32_t> backwards_since_step{0};
};
extern constinit TorchState g_torch;

// After PythonObserveOpening, with the same name.
void TorchObserveOpening(const char* file);

// Has the agent run in the main thread as soon as that executes Python, but not so soon after its
// last run that it would cost the program more than 2 %. Needs no GIL.
void TorchAsk();

// The same because of a module that has no name.
void TorchAskForModule();

// The same while models are built or moved; it limits its own rate. `in_set_up`: by the event's own
// stack.
void TorchAskBuilding(bool in_set_up);

// PyTorch gives a request up: what a program that dies of it has built has names then. Any thread;
// needs no GIL. False if it was building or moving a model, which gets its names only later.
bool TorchObserveRefusal();

// Runs the agent at once, unless it is at work. The caller holds the GIL and returns to Python,
// which sees to an exception that a signal handler of the program's may have raised meanwhile.
void TorchLook();

// Looks for all that has no name yet: the program ends now, or the recording. As TorchLook().
void TorchLookLast();

// A graph was captured, or is launched: its memory is in a private pool of PyTorch's allocator, and
// which segments those are the agent asks PyTorch soon afterwards. Any thread; needs no GIL.
void TorchObserveGraph(bool captured);

// Tensors of replayed graphs that are gone end now. The caller holds the GIL. False if an exception
// of a signal handler of the program's is set.
bool TorchEndGraphTensors();

// A backward is over.
void TorchBackwardEnded();

// Memory of a parameter or a buffer was freed: in a model that lives, others took their place.
void TorchNamedIsFreed();

extern const Source kTorchSource;

// Answers TorchKnowsModule() if no result is noted, or if a module is built or moved.
VRAMSCOPE_NOINLINE bool TorchKnowsModuleOf(KnownStack* known, uint32_t seen);

// Whether no module runs below that stack, or one that has a name. The result is noted beside the
// stack, which is at hand. So the set is asked again only after something was taken out of it.
VRAMSCOPE_ALWAYS_INLINE bool TorchKnowsModule(const PythonStack& stack) {
  const KnownStack& known = *stack.known;
  const uint32_t seen = g_torch.modules->taken_out() + 1;
  // The entry is another's where the stream has forgotten its stacks meanwhile.
  if (known.module == 0 || known.modules_seen == seen || known.id != stack.id)
    return true;
  return TorchKnowsModuleOf(stack.known, seen);
}

// Called with each block that is freed. Any thread; needs no GIL.
VRAMSCOPE_ALWAYS_INLINE void TorchObserveFree(const void* block) {
  TorchSet* const named = g_torch.named.load(std::memory_order_relaxed);
  if (VRAMSCOPE_UNLIKELY(named != nullptr && named->Take(reinterpret_cast<uintptr_t>(block))))
    TorchNamedIsFreed();
}

// Called with the stack of each event, and the node that autograd evaluates.
VRAMSCOPE_ALWAYS_INLINE void TorchObserveStack(const PythonStack& stack, const AutogradNode& node) {
  const TorchNames names = g_torch.names.load(std::memory_order_acquire);
  if (node.type != nullptr) {
    if (VRAMSCOPE_UNLIKELY(!g_torch.in_backward.load(std::memory_order_relaxed)))
      g_torch.in_backward.store(true, std::memory_order_relaxed);
  } else if (VRAMSCOPE_UNLIKELY(g_torch.in_backward.load(std::memory_order_relaxed)) &&
             stack.id != 0 && names >= TorchNames::kOn) {
    TorchBackwardEnded();
  }
  if (names == TorchNames::kOff || stack.id == 0)
    return;
  const bool knows = names != TorchNames::kWaiting && TorchKnowsModule(stack);
  if (VRAMSCOPE_LIKELY(knows && names == TorchNames::kOn))
    return;
  return knows ? TorchAskBuilding((stack.known->module & kSetUp) != 0) : TorchAskForModule();
}

}  // namespace vramscope::probe
