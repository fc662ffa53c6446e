// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "probe/session/tables.h"

// The objects of a Python process and the references between them, as numbers: it holds no
// reference, and its answers need no GIL. Lives in pages of its own, so that the program's heap
// does not change.
namespace vramscope::probe {

inline constexpr uint32_t kNoIndex = UINT32_MAX;

// An array that grows, of a trivial type. It gives its memory back when it ends.
template <class T>
class PageArray {
 public:
  PageArray() = default;
  ~PageArray() { Clear(); }
  PageArray(const PageArray&) = delete;
  PageArray& operator=(const PageArray&) = delete;

  // False when memory is exhausted.
  bool Push(const T& value) {
    if (size_ == capacity_ && !Grow(capacity_ == 0 ? kFirst : 2 * capacity_))
      return false;
    data_[size_++] = value;
    return true;
  }
  // Makes an empty array `size` elements, all of their bytes 0.
  bool Zero(size_t size) {
    size_ = size;
    return size == 0 || Reserve(size);
  }
  // Takes memory for that many at once, which is faster than a page at a time.
  bool Reserve(size_t capacity) {
    if (capacity <= capacity_ || !Grow(capacity))
      return capacity <= capacity_;
    madvise(data_, capacity_ * sizeof(T), kPopulate);
    return true;
  }
  void Clear() {
    if (data_ != nullptr)
      munmap(data_, capacity_ * sizeof(T));
    data_ = nullptr;
    size_ = capacity_ = 0;
  }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  static constexpr size_t kFirst = 65536 / sizeof(T);
  static constexpr int kPopulate = 23;  // MADV_POPULATE_WRITE of Linux 5.14; fails before
  bool Grow(size_t capacity) {
    void* const memory =
        data_ == nullptr
            ? mmap(nullptr, capacity * sizeof(T), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
            : mremap(data_, capacity_ * sizeof(T), capacity * sizeof(T), MREMAP_MAYMOVE);
    if (memory == MAP_FAILED)
      return false;
    data_ = static_cast<T*>(memory);
    capacity_ = capacity;
    return true;
  }

  T* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

// From a word that is not 0 to an index.
class IndexMap {
 public:
  // The index of `key`, kNoIndex if there is none.
  uint32_t Find(uint64_t key) const {
    if (slots_.size() == 0)
      return kNoIndex;
    for (size_t i = SlotOf(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == key)
        return slots_[i].index;
      if (slots_[i].key == 0)
        return kNoIndex;
    }
  }
  // `key` is new. False when memory is exhausted.
  bool Add(uint64_t key, uint32_t index) {
    if (4 * (used_ + 1) > 3 * slots_.size() &&
        !Resize(slots_.size() == 0 ? kFirst : 2 * slots_.size()))
      return false;
    Put(key, index);
    ++used_;
    return true;
  }
  // Makes room for that many in all.
  bool Reserve(size_t count);
  void Clear() {
    slots_.Clear();
    used_ = 0;
  }

 private:
  struct Slot {
    uint64_t key;
    uint32_t index;
  };
  size_t SlotOf(uint64_t key) const {
    return static_cast<size_t>(HashMix(0, key) >> 20) & (slots_.size() - 1);
  }
  void Put(uint64_t key, uint32_t index) {
    size_t i = SlotOf(key);
    while (slots_[i].key != 0)
      i = (i + 1) & (slots_.size() - 1);
    slots_[i] = {key, index};
  }
  bool Resize(size_t size);

  static constexpr size_t kFirst = 4096;

  PageArray<Slot> slots_;
  size_t used_ = 0;
};

// How one object leads to the next.
enum class Link : uint8_t {
  kReference = 0,  // a Python reference
  kGraph = 1,      // of autograd: a tensor's node, or the next one
  kSaved = 2,      // a tensor that a node saves
  kGradient = 3,   // a tensor's gradient
};

// Where a way begins. None: it is not known yet.
enum class Root : uint8_t {
  kNone = 0,
  kModule = 1,  // a module's variables
  kFrame = 2,   // a running function's
  kHeld = 3,    // something outside of Python's view refers to it
};

struct GraphNode {
  uintptr_t object;    // bit 0 set: no Python object, but a frame or a gradient's TensorImpl
  uint64_t signature;  // the same for ways that differ in an index alone; 0: not made yet; a
                       // frame's is its code object
  uint32_t parent;     // reached from it, by `edge`
  uint32_t edge;
  uint32_t first_edge, edge_count;
  uint32_t storage;     // kNoIndex: it is no tensor that is wanted
  uint32_t references;  // from objects that no root leads to; a frame has its line here
  Root root;
  bool is_reached, is_expanded;
};

struct GraphEdge {
  uintptr_t name;  // a str or another key, 0 if it has none; a Link in the lowest bits
  uint32_t to;
};

struct GraphStorage {
  uintptr_t impl;
  uint64_t bytes;
  int32_t device;
  uint32_t node;  // the nearest one that has it; kNoIndex: none is reached
};

struct ObjectGraph {
  PageArray<GraphNode> nodes;
  PageArray<GraphEdge> edges;
  PageArray<GraphStorage> storages;
  PageArray<uint32_t> queue;
  IndexMap node_of, storage_of;

  void Clear();
  // For about that many objects, as far as `most_bytes` suffice. False when memory is exhausted.
  bool Reserve(size_t objects, uint64_t most_bytes);
  size_t Bytes() const;
  // Marks it reached, and queues it. False when memory is exhausted.
  bool Reach(uint32_t node, uint32_t parent, uint32_t edge);
  // The bytes that no root reaches without this node. False when memory is exhausted.
  bool BytesThrough(uint32_t node, uint64_t* bytes) const;
};

}  // namespace vramscope::probe
