// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "base/clock.h"
#include "probe/stack/python/api.h"
#include "probe/stack/python/walk.h"

namespace vramscope::probe {
namespace {

constexpr int kGenerations = 3;
constexpr uint32_t kSearchedBytes = 64 << 10;  // of PyInterpreterState
constexpr int32_t kHeld = INT32_MIN / 2;       // no allocations bring it above a threshold
constexpr int32_t kAround = INT32_MAX / 4;
constexpr int kMostLater = 256;
// From 3.12 on an allocation only asks for a collection, which runs a little later.
constexpr uint32_t kCollectsLater = 0x030c0000;
constexpr int64_t kSliceNs = 1'000'000;
constexpr uint32_t kLooksAtClock = 256;  // once in that many objects
constexpr int kMostWalks = 3;            // after that the GIL is kept

// PyGC_Head of CPython, in front of each object and at the head of each list. Low bits are flags.
struct Node {
  uintptr_t next, previous;
};
constexpr uintptr_t kNodeFlags = 3;

// struct gc_generation of CPython: the list of its objects, then the two numbers.
struct Generation {
  Node head;
  int32_t threshold, count;
};
// Where the generation of gc.freeze() stands after the first one in struct _gc_runtime_state. Most
// versions have a pointer before it.
constexpr size_t kFrozen[] = {kGenerations * sizeof(Generation) + sizeof(uintptr_t),
                              kGenerations * sizeof(Generation)};

constinit Generation* g_generations = nullptr;  // of three, one after the other
constinit int32_t g_saved[kGenerations] = {};
constinit int g_depth = 0;  // 1 within a pause
constinit bool g_prepared = false;
constinit Object g_later[kMostLater] = {};
constinit int g_later_count = 0;

// Whether it is the head of a list: the first object leads back to it. Low bits are flags.
bool IsHead(const SafeReader& reader, const Generation& read, uintptr_t address) {
  constexpr uintptr_t kFlags = 7;
  uintptr_t back = 0;
  return read.head.next != 0 && read.head.previous != 0 && read.threshold >= 0 && read.count >= 0 &&
         reader.Get(reinterpret_cast<const char*>(read.head.next & ~kFlags) + sizeof(uintptr_t),
                    &back) &&
         (back & ~kFlags) == address;
}

Generation* FindGenerations() {
  const SafeReader reader;
  auto* const state = static_cast<char*>(g_api.PyInterpreterState_Get());
  struct Three {
    Generation at[kGenerations];
  } three;
  constexpr uint32_t kPart = 4096;
  char part[kPart + sizeof three];
  for (uint32_t begin = 0; begin < kSearchedBytes; begin += kPart) {
    if (!reader.Get(state + begin, &part))
      return nullptr;
    for (uint32_t i = 0; i < kPart; i += sizeof(uintptr_t)) {
      std::memcpy(&three, part + i, sizeof three);
      const auto address = reinterpret_cast<uintptr_t>(state + begin + i);
      bool all = true;
      for (int g = 0; g < kGenerations && all; ++g)
        all = IsHead(reader, three.at[g], address + static_cast<size_t>(g) * sizeof(Generation));
      if (all)
        return reinterpret_cast<Generation*>(address);
    }
  }
  return nullptr;
}

// An allocation that counts, and its end, which counts back: no list of free ones keeps it.
Object Counted() {
  return g_api.PyInstanceMethod_New(g_api.none);
}

bool Counts(const Generation& young) {
  const int32_t before = young.count;
  if (before < 0 || before >= young.threshold)
    return false;
  Object const object = Counted();
  if (object == nullptr)
    return false;
  const bool more = young.count == before + 1;
  g_api.Py_DecRef(object);
  return more && young.count == before;
}

void ReleaseAll() {
  while (g_later_count > 0)
    g_api.Py_DecRef(g_later[--g_later_count]);
}

// A collection, by any thread, sets the count to 0.
bool IsHeld(const Generation& generation) {
  return generation.count > kHeld - kAround && generation.count < kHeld + kAround;
}

void Hold() {
  for (int i = 0; i < kGenerations; ++i) {
    if (IsHeld(g_generations[i]))
      continue;
    g_saved[i] = g_generations[i].count;
    g_generations[i].count = kHeld;
  }
}

// ---- all objects

Node* NextOf(const Node& node) {
  return reinterpret_cast<Node*>(node.next & ~kNodeFlags);
}
Object ObjectOf(Node* node) {
  return node + 1;
}

// Marks a place in a list of the collector while other threads run. It is an object of the probe.
class Bookmark {
 public:
  bool Make() {
    object_ = g_api.PyList_New(0);
    if (object_ != nullptr)
      g_api.PyObject_GC_UnTrack(object_);
    return object_ != nullptr;
  }
  Bookmark() = default;
  Bookmark(const Bookmark&) = delete;
  Bookmark& operator=(const Bookmark&) = delete;
  ~Bookmark() {
    if (object_ != nullptr)
      g_api.Py_DecRef(object_);
  }

  void PutAfter(Node* node) {
    Node* const mark = static_cast<Node*>(object_) - 1;
    Node* const next = NextOf(*node);
    mark->next = reinterpret_cast<uintptr_t>(next);
    mark->previous = reinterpret_cast<uintptr_t>(node) | (mark->previous & kNodeFlags);
    next->previous = reinterpret_cast<uintptr_t>(mark) | (next->previous & kNodeFlags);
    node->next = reinterpret_cast<uintptr_t>(mark) | (node->next & kNodeFlags);
  }
  // What now stands before it.
  Node* Take() {
    auto* const node =
        reinterpret_cast<Node*>((static_cast<Node*>(object_) - 1)->previous & ~kNodeFlags);
    g_api.PyObject_GC_UnTrack(object_);
    return node;
  }

 private:
  Object object_ = nullptr;
};

// The list of gc.freeze(). Null if it is not where it is expected.
Node* FindFrozen() {
  const SafeReader reader;
  for (const size_t offset : kFrozen) {
    auto* const found =
        reinterpret_cast<Generation*>(reinterpret_cast<char*>(g_generations) + offset);
    Generation read;
    if (reader.Get(reinterpret_cast<const char*>(found), &read) &&
        IsHead(reader, read, reinterpret_cast<uintptr_t>(found)))
      return &found->head;
  }
  return nullptr;
}

// From 3.14.0 on, for some releases, each object had a flag for the list that it was in. The third
// threshold has no meaning there.
bool HasListFlags() {
  constexpr uint32_t kFirst = 0x030e0000;
  return g_python.version_hex >= kFirst && g_generations[2].threshold == 0;
}

class ObjectWalk {
 public:
  ObjectWalk(ObjectVisitor* visitor, bool gives_way)
      : visitor_(visitor), gives_way_(gives_way), slice_ns_(base::MonotonicNs()) {}

  Visited VisitAll() {
    if (gives_way_ && !bookmark_.Make())
      return Visited::kStopped;
    if (!visitor_->Begin())
      return Visited::kStopped;
    for (int i = 0; i < kGenerations; ++i) {
      if (!VisitList(&g_generations[i].head))
        return Visited::kStopped;
    }
    Node* const frozen = FindFrozen();
    if (frozen != nullptr && !VisitList(frozen))
      return Visited::kStopped;
    return Visited::kAll;
  }
  bool objects_moved() const { return objects_moved_; }

 private:
  bool VisitList(Node* head) {
    for (Node* node = NextOf(*head); node != head; node = NextOf(*node)) {
      if (!visitor_->Visit(ObjectOf(node)))
        return false;
      if (gives_way_ && ++visited_ % kLooksAtClock == 0 &&
          base::MonotonicNs() - slice_ns_ >= kSliceNs) {
        bookmark_.PutAfter(node);
        GiveWay();
        slice_ns_ = base::MonotonicNs();
        node = bookmark_.Take();
        objects_moved_ = !IsHeld(g_generations[0]);
        if (objects_moved_)
          return false;
      }
    }
    return true;
  }

  ObjectVisitor* visitor_;
  bool gives_way_;
  int64_t slice_ns_;
  uint32_t visited_ = 0;
  bool objects_moved_ = false;
  Bookmark bookmark_;
};

}  // namespace

void CollectorPrepare() {
  if (g_prepared || !g_api.Load())
    return;
  Generation* const found = FindGenerations();
  if (found == nullptr || !Counts(*found)) {
    g_prepared = found == nullptr;  // just now a collection may be due
    return;
  }
  g_prepared = true;
  g_generations = found;
}

void CollectorForked() {
  if (g_depth == 0)
    return;
  g_depth = 0;
  for (int i = 0; i < kGenerations && g_generations != nullptr; ++i)
    g_generations[i].count = g_saved[i];
}

CollectorPause::CollectorPause() {
  if (g_generations == nullptr || g_depth != 0)
    return;
  g_depth = 1;
  outermost_ = true;
  Hold();
  ReleaseAll();
}

CollectorPause::~CollectorPause() {
  if (!outermost_ || g_depth == 0)
    return;
  g_depth = 0;
  for (int i = 0; i < kGenerations; ++i) {
    // Another thread may have collected meanwhile.
    if (IsHeld(g_generations[i]))
      g_generations[i].count = g_saved[i];
  }
  // The interpreter may have looked meanwhile whether a collection is due.
  if (g_python.version_hex < kCollectsLater || g_generations[0].count <= g_generations[0].threshold)
    return;
  if (Object const object = Counted(); object != nullptr)
    g_api.Py_DecRef(object);
}

Visited VisitObjects(ObjectVisitor* visitor) {
  if (g_depth == 0 || HasListFlags())
    return Visited::kNotPossible;
  for (int walks = 0;; ++walks) {
    ObjectWalk walk(visitor, WayGiver::IsAlive() && walks < kMostWalks);
    const Visited visited = walk.VisitAll();
    if (!walk.objects_moved()) {
      GiveWay();
      return visited;
    }
    Hold();
  }
}

void ReleaseLater(Object object) {
  if (object == nullptr)
    return;
  if (g_later_count == kMostLater) {
    const CollectorPause pause;  // releases them
    ReleaseAll();
  }
  g_later[g_later_count++] = object;
}

}  // namespace vramscope::probe
