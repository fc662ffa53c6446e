// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <link.h>

#include <cstring>

#include "probe/hooks/torch/torch.h"
#include "probe/platform/dynamic.h"
#include "probe/session/session.h"
#include "probe/stack/python/api.h"

// Address of a thread's copy of a variable (the ABI of thread-local storage).
struct TlsIndex {
  size_t module, offset;
};
extern "C" void* __tls_get_addr(TlsIndex*);

namespace vramscope::probe {

constinit AutogradState g_autograd;
constinit VRAMSCOPE_TLS AutogradThread t_autograd{};

namespace {

constexpr int kMaxObjects = 4;

// The result of get_current_node(), which is returned through a hidden pointer.
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

#ifdef __x86_64__
bool ReadsWhatRaxPointsTo(const unsigned char* code) {
  constexpr unsigned char kAnyRegister = 0xc7;  // of ModRM, the bits that must be zero
  if (code[0] == 0x48 && code[1] == 0x8b)
    return (code[2] & kAnyRegister) == 0;
  return code[0] == 0xf3 && code[1] == 0x0f && code[2] == 0x6f && (code[3] & kAnyRegister) == 0;
}
#endif

// get_current_node() takes a reference, and where nodes are c10::intrusive_ptr that can take the
// GIL, which a hook must never do. It begins by asking a function for the place where the thread
// keeps its node; that function is all that is needed:
//
//   ff 15 <offset>   call *offset(%rip)     the accessor, in a variable of the library
//   48 8b 0?         mov (%rax), %r?        the node, or
//   f3 0f 6f 0?      movdqu (%rax), %xmm?   the node and its counts (std::shared_ptr)
const char** (*FindAccessor(const char* function))() {
#ifdef __x86_64__
  const SafeReader reader;
  unsigned char code[48];
  if (!reader.Get(function, &code))
    return nullptr;
  for (size_t i = 0; i + 10 <= sizeof code; ++i) {
    if (code[i] == 0xc3)
      break;
    if (code[i] != 0xff || code[i + 1] != 0x15)
      continue;
    if (!ReadsWhatRaxPointsTo(code + i + 6))
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

struct TlsBlock {
  size_t module = 0;
  size_t size_bytes = 0;
};

int FindTlsBlock(dl_phdr_info* info, size_t size, void* data) {
  if (size < offsetof(dl_phdr_info, dlpi_tls_data) || info->dlpi_name == nullptr ||
      std::strstr(info->dlpi_name, kTorchLibrary) == nullptr) {
    return 0;
  }
  auto* block = static_cast<TlsBlock*>(data);
  block->module = info->dlpi_tls_modid;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type == PT_TLS)
      block->size_bytes = info->dlpi_phdr[i].p_memsz;
  }
  return 1;
}

// Asking for the next number takes longer than reading it. Its place among the library's
// thread-local variables is the one word that counts along when numbers are used up.
void FindNext(uint64_t (*peek)()) {
  auto* const increment = reinterpret_cast<uint64_t (*)()>(
      FindInLoadedLibrary(kTorchLibrary, "_ZN2at15sequence_number17get_and_incrementEv"));
  TlsBlock block;
  dl_iterate_phdr(FindTlsBlock, &block);
  if (increment == nullptr || block.module == 0)
    return;
  TlsIndex index{block.module, 0};
  const auto* const base = static_cast<const char*>(__tls_get_addr(&index));
  size_t found = 0;
  int count = 0;
  for (size_t offset = 0; offset + 8 <= block.size_bytes; offset += 8) {
    if (ReadAt<uint64_t>(base, offset) != peek())
      continue;
    increment();
    increment();
    if (ReadAt<uint64_t>(base, offset) != peek())
      continue;
    found = offset;
    ++count;
  }
  if (count != 1)
    return;
  g_autograd.tls_next = found;
  g_autograd.tls_module = block.module;
}

}  // namespace

int CalibrateAutograd(Object samples) {
  const ptrdiff_t size = g_api.PyList_Size(samples);
  uint64_t objects[kMaxObjects], numbers[kMaxObjects];
  int count = 0;
  for (; count < size && count < kMaxObjects; ++count) {
    Object const tuple = g_api.PyList_GetItem(samples, count);
    objects[count] = reinterpret_cast<uint64_t>(Argument(tuple, 0));
    numbers[count] = reinterpret_cast<uint64_t>(g_api.PyLong_AsVoidPtr(Argument(tuple, 1)));
  }
  auto* const peek = reinterpret_cast<uint64_t (*)()>(
      FindInLoadedLibrary(kTorchLibrary, "_ZN2at15sequence_number4peekEv"));
  if (g_api.PyErr_Occurred() != nullptr || count < 3 || peek == nullptr ||
      peek() != numbers[count - 1] + 1) {
    g_api.PyErr_Clear();
    return 0;
  }
  NodeLayout layout{};
  auto* const get_current =
      FindInLoadedLibrary(kTorchLibrary, "_ZN5torch8autograd16get_current_nodeEv");
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
  FindNext(peek);
  g_autograd.peek.store(peek, std::memory_order_release);
  return found ? 2 : 1;
}

// The first node is looked at with care; where a thread's places are not known, each event asks.
VRAMSCOPE_NOINLINE AutogradNode CurrentAutogradNodeSlow(bool runs_python) {
  auto* const current = g_autograd.current.load(std::memory_order_relaxed);
  auto* const get_current = g_autograd.get_current.load(std::memory_order_relaxed);
  NodeReference reference{};
  if (current != nullptr) {
    const char** const place = current();
    reference.node = *place;
    if (g_autograd.tls_module != 0) {
      TlsIndex index{g_autograd.tls_module, g_autograd.tls_next};
      t_autograd = {static_cast<const uint64_t*>(__tls_get_addr(&index)), place};
    }
  } else if (get_current != nullptr) {
    get_current(&reference);
  }
  if (reference.node == nullptr) {
    const uint64_t next = runs_python ? g_autograd.peek.load(std::memory_order_relaxed)() : 0;
    return {runs_python ? 2 * next + 1 : 0, nullptr};
  }
  uint64_t number = 0, type = 0, method = 0;
  const SafeReader reader;
  const bool ok = g_autograd.node_seen.load(std::memory_order_relaxed) ||
                  (reader.Get(reference.node, &type) && Word(type, &method) &&
                   reader.Get(reference.node + g_autograd.sequence, &number));
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
