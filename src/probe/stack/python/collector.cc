// SPDX-License-Identifier: Apache-2.0
#include <cstring>

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

// struct gc_generation of CPython: the list of its objects, then the two numbers.
struct Generation {
  uintptr_t next, previous;
  int32_t threshold, count;
};

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
  return read.next != 0 && read.previous != 0 && read.threshold >= 0 && read.count >= 0 &&
         reader.Get(reinterpret_cast<const char*>(read.next & ~kFlags) + sizeof(uintptr_t),
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

Object Nothing(Object, Object) {
  return g_api.None();
}
constinit PyMethodDef g_nothing = {"nothing", Nothing, kMethNoArgs, nullptr};

// An allocation that counts, and its end, which counts back: no list of free ones keeps it.
Object Counted() {
  return g_api.PyCFunction_NewEx(&g_nothing, nullptr, nullptr);
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
  for (int i = 0; i < kGenerations; ++i) {
    g_saved[i] = g_generations[i].count;
    g_generations[i].count = kHeld;
  }
  ReleaseAll();
}

CollectorPause::~CollectorPause() {
  if (!outermost_ || g_depth == 0)
    return;
  g_depth = 0;
  for (int i = 0; i < kGenerations; ++i) {
    int32_t& count = g_generations[i].count;
    // Another thread may have collected meanwhile.
    if (count > kHeld - kAround && count < kHeld + kAround)
      count = g_saved[i];
  }
  // The interpreter may have looked meanwhile whether a collection is due.
  if (g_python.version_hex < kCollectsLater || g_generations[0].count <= g_generations[0].threshold)
    return;
  if (Object const object = Counted(); object != nullptr)
    g_api.Py_DecRef(object);
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
