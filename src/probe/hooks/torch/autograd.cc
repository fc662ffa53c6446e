// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/torch/autograd.h"

#include <dlfcn.h>

#include <cstring>

#include "probe/platform/dynamic.h"
#include "probe/platform/safe_reader.h"
#include "probe/session/session.h"

namespace vramscope::probe {

constinit AutogradState g_autograd;

namespace {

constexpr char kLibrary[] = "libtorch_cpu.so";
constexpr int kMaxSamples = 4;

// What get_current_node() gives: its result comes through a hidden pointer.
struct NodeReference {
  const char* node;
  char* control;  // libstdc++'s reference counts, where nodes are held by std::shared_ptr
};
constexpr uint32_t kUseCount = 8;  // std::_Sp_counted_base::_M_use_count

struct NodeLayout {
  uint32_t python_node;  // THPCppFunction: the node
  uint32_t sequence;
  bool shared;  // held by std::shared_ptr, later versions: by c10::intrusive_ptr
};

bool Word(uint64_t address, uint64_t* value) {
  return SafeReader().Get(reinterpret_cast<const char*>(address), value);
}

// Nodes that are made one after another have consecutive numbers, so chance cannot fake them.
bool FindLayout(const uint64_t* objects, const uint64_t* numbers, int count, NodeLayout* layout) {
  int found = 0;
  for (uint32_t at = 16; at <= 32; at += 8) {
    for (uint32_t offset = 8; offset < 64; offset += 8) {
      bool all = true, shared = true;
      for (int i = 0; i < count && all; ++i) {
        uint64_t node = 0, number = 0, self = 0, control = 0, own_control = 0;
        all = Word(objects[i] + at, &node) && node != 0 && Word(node + offset, &number) &&
              number == numbers[i];
        // std::enable_shared_from_this: the node's own address and its counts.
        shared = shared && all && Word(node + 8, &self) && Word(node + 16, &control) &&
                 Word(objects[i] + at + 8, &own_control) && self == node && control == own_control;
      }
      if (!all)
        continue;
      *layout = {at, offset, shared};
      ++found;
    }
  }
  return found == 1;
}

// get_current_node() takes a reference, and where nodes are c10::intrusive_ptr that can take the
// GIL, which a hook must never do. It begins by asking a function for the place where the thread
// keeps its node; that function is all that is needed:
//
//   ff 15 <offset>   call *offset(%rip)     the accessor, in a variable of the library
//   48 8b 0?         mov (%rax), %r?        the node
const char** (*FindAccessor(const char* function))() {
#ifdef __x86_64__
  const SafeReader reader;
  unsigned char code[48];
  if (!reader.Get(function, &code))
    return nullptr;
  for (size_t i = 0; i + 9 <= sizeof code; ++i) {
    if (code[i] == 0xc3)
      break;
    if (code[i] != 0xff || code[i + 1] != 0x15)
      continue;
    if (code[i + 6] != 0x48 || code[i + 7] != 0x8b || (code[i + 8] & 0xc7) != 0)
      return nullptr;
    int32_t offset = 0;
    std::memcpy(&offset, code + i + 2, sizeof offset);
    const char* accessor = nullptr;
    if (!reader.Get(function + i + 6 + offset, &accessor))
      return nullptr;
    Dl_info ours{}, theirs{};
    if (dladdr(function, &ours) == 0 || dladdr(accessor, &theirs) == 0 ||
        ours.dli_fbase != theirs.dli_fbase) {
      return nullptr;
    }
    return reinterpret_cast<const char** (*)()>(const_cast<char*>(accessor));
  }
#else
  (void)function;
#endif
  return nullptr;
}

}  // namespace

int CalibrateAutograd(Object samples) {
  const ptrdiff_t size = g_api.PyList_Size(samples);
  uint64_t objects[kMaxSamples], numbers[kMaxSamples];
  int count = 0;
  for (; count < size && count < kMaxSamples; ++count) {
    Object const tuple = g_api.PyList_GetItem(samples, count);
    objects[count] = reinterpret_cast<uint64_t>(Argument(tuple, 0));
    numbers[count] = reinterpret_cast<uint64_t>(g_api.PyLong_AsVoidPtr(Argument(tuple, 1)));
  }
  auto* const peek = reinterpret_cast<uint64_t (*)()>(
      FindInLoadedLibrary(kLibrary, "_ZN2at15sequence_number4peekEv"));
  if (g_api.PyErr_Occurred() != nullptr || count < 3 || peek == nullptr ||
      peek() != numbers[count - 1] + 1) {
    g_api.PyErr_Clear();
    return 0;
  }
  NodeLayout layout{};
  auto* const get_current = FindInLoadedLibrary(kLibrary, "_ZN5torch8autograd16get_current_nodeEv");
  bool found = get_current != nullptr && FindLayout(objects, numbers, count, &layout);
  if (found) {
    auto* const accessor = FindAccessor(static_cast<const char*>(get_current));
    const char* node = nullptr;
    g_autograd.sequence = layout.sequence;
    if (accessor != nullptr && SafeReader().Get(reinterpret_cast<const char*>(accessor()), &node) &&
        node == nullptr) {
      g_autograd.current.store(accessor, std::memory_order_relaxed);
    } else if (layout.shared) {
      g_autograd.get_current.store(reinterpret_cast<void (*)(void*)>(get_current),
                                   std::memory_order_relaxed);
    } else {
      found = false;
    }
  }
  g_autograd.peek.store(peek, std::memory_order_release);
  return found ? 2 : 1;
}

// The first node is looked at with care; where nodes are std::shared_ptr and their place was not
// found, each is asked for.
VRAMSCOPE_NOINLINE AutogradNode CurrentAutogradNodeSlow() {
  NodeReference reference{};
  if (auto* const current = g_autograd.current.load(std::memory_order_relaxed)) {
    reference.node = *current();
  } else {
    g_autograd.get_current.load(std::memory_order_relaxed)(&reference);
  }
  if (reference.node == nullptr)
    return {};
  uint64_t number = 0, type = 0, method = 0;
  const bool ok = g_autograd.node_seen.load(std::memory_order_relaxed) ||
                  (SafeReader().Get(reference.node, &type) && Word(type, &method) &&
                   SafeReader().Get(reference.node + g_autograd.sequence, &number));
  if (ok) {
    g_autograd.node_seen.store(true, std::memory_order_relaxed);
    type = ReadAt<uint64_t>(reference.node, 0);
    number = ReadAt<uint64_t>(reference.node, g_autograd.sequence);
  } else {
    g_autograd.current.store(nullptr, std::memory_order_relaxed);
    g_autograd.get_current.store(nullptr, std::memory_order_relaxed);
    CountLoss(format::Loss::kAutogradNodes);
  }
  // The engine holds the node too, so this reference is never the last one.
  if (reference.control != nullptr) {
    auto* const count = reinterpret_cast<int*>(reference.control + kUseCount);
    __atomic_fetch_sub(count, 1, __ATOMIC_ACQ_REL);
  }
  if (number > kUnnumberedNode)
    number = kUnnumberedNode;
  return ok ? AutogradNode{2 * number + 2, reinterpret_cast<const void*>(type)} : AutogradNode{};
}

}  // namespace vramscope::probe
