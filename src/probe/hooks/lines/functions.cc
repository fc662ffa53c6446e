// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <cstring>

#include "probe/hooks/c10/watch.h"
#include "probe/hooks/lines/lines.h"

namespace vramscope::probe {

Function* g_functions = nullptr;

namespace {

// Code object -> its first function. Removing an entry keeps the rest of its chain in place.
struct Entry {
  Object code;
  int32_t first;
};
constexpr uint32_t kEntries = kMostFunctions * 4;
Entry* g_entries = nullptr;
int32_t g_highest = 0;  // functions that were ever used

void* MapZeroed(size_t size_bytes) {
  void* const memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

bool Prepare() {
  if (g_functions == nullptr)
    g_functions = static_cast<Function*>(MapZeroed(sizeof(Function) * kMostFunctions));
  if (g_entries == nullptr)
    g_entries = static_cast<Entry*>(MapZeroed(sizeof(Entry) * kEntries));
  return g_functions != nullptr && g_entries != nullptr;
}

uint32_t SlotOf(Object code) {
  return static_cast<uint32_t>((reinterpret_cast<uintptr_t>(code) * 0x9e3779b97f4a7c15u) >> 32) &
         (kEntries - 1);
}

// The entry of that code, or the free one for it.
Entry& EntryOf(Object code) {
  uint32_t i = SlotOf(code);
  while (g_entries[i].code != nullptr && g_entries[i].code != code)
    i = (i + 1) & (kEntries - 1);
  return g_entries[i];
}

// From the functions again, so that nothing that was removed stays in the way.
void RebuildEntries() {
  std::memset(g_entries, 0, sizeof(Entry) * kEntries);
  for (int32_t id = 0; id < g_highest; ++id) {
    Function& function = g_functions[id];
    if (function.code == nullptr)
      continue;
    Entry& entry = EntryOf(function.code);
    function.next = entry.code != nullptr ? entry.first : -1;
    entry = {function.code, id};
  }
}

}  // namespace

int32_t AddFunction(Object code, int32_t first_line, int32_t line_count, int32_t target_count) {
  if (!Prepare() || line_count <= 0 || target_count <= 0 || target_count > kWatchedDevices)
    return -1;
  int32_t id = 0;
  while (id < g_highest && g_functions[id].code != nullptr)
    ++id;
  if (id == kMostFunctions)
    return -1;
  Function function{};
  function.first_line = first_line;
  function.line_count = line_count;
  function.target_count = target_count;
  function.figures_bytes =
      static_cast<size_t>(target_count) *
      (sizeof(FunctionFigures) + sizeof(LineFigures) * static_cast<size_t>(line_count));
  function.figures = static_cast<uint8_t*>(MapZeroed(function.figures_bytes));
  if (function.figures == nullptr)
    return -1;
  g_api.Py_IncRef(code);
  function.code = code;
  g_functions[id] = function;
  ClearFunction(id);
  if (id == g_highest)
    ++g_highest;
  RebuildEntries();
  return id;
}

void RemoveFunction(int32_t id) {
  Function& function = g_functions[id];
  Object const code = function.code;
  Object const sampler = function.sampler;
  munmap(function.figures, function.figures_bytes);
  function = {};
  RebuildEntries();
  // Last, because they can run Python.
  g_api.Py_DecRef(code);
  g_api.Py_DecRef(sampler);
}

void ClearFunction(int32_t id) {
  const Function& function = g_functions[id];
  std::memset(function.figures, 0, function.figures_bytes);
  for (int target = 0; target < function.target_count; ++target) {
    function.Of(target).peak_allocated = kNoPeak;
    for (int32_t i = 0; i < function.line_count; ++i) {
      LineFigures& line = *function.Line(target, function.first_line + i);
      // These figures can be negative.
      line.peak_allocated = line.peak_reserved = line.allocated = line.reserved = kNoPeak;
    }
  }
}

int32_t FirstFunction(Object code) {
  if (g_entries == nullptr)
    return -1;
  const Entry& entry = EntryOf(code);
  return entry.code != nullptr ? entry.first : -1;
}

}  // namespace vramscope::probe
