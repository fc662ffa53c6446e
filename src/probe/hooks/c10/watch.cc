// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/c10/watch.h"

#include <malloc.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace vramscope::probe {

constinit WatchedDevice g_watched[kWatchedDevices];
constinit std::atomic<uint32_t> g_watch_mask{0};

namespace {

// The live blocks, in the order in which they came, and a table that finds them by address. Freed
// blocks stay in the list until it is full; then the rest is moved together. Mapped once, at its
// largest size; the unused part costs nothing.
constexpr uint32_t kLeastBlocks = 1 << 14;
constexpr uint32_t kMostBlocks = 1 << 20;
constexpr uint32_t kGone = ~uint32_t{0};
constexpr int kSpins = 1 << 18;
constexpr int kSpinsBetweenYields = 1 << 10;

struct BlockList {
  LiveBlock* blocks;
  uint32_t* table;  // index + 1; 0: free, kGone: its block was freed
  uint32_t count;
  uint32_t capacity;
  uint64_t serial;
  std::atomic<bool> incomplete;  // some were not noted
};
constinit BlockList g_list{};
constinit std::atomic<bool> g_list_taken{false};

// Held for nanoseconds by threads that allocate. A thread that cannot get it continues without: the
// lock can be lost with a parent's thread in a forked child, or a signal handler interrupted its
// holder.
class ListLock {
 public:
  ListLock() {
    for (int i = 0; i < kSpins; ++i) {
      if (!g_list_taken.load(std::memory_order_relaxed) &&
          !g_list_taken.exchange(true, std::memory_order_acquire)) {
        is_held_ = true;
        return;
      }
#ifdef __x86_64__
      __builtin_ia32_pause();
#endif
      // The lock's holder may wait for this core.
      if (i % kSpinsBetweenYields == kSpinsBetweenYields - 1)
        sched_yield();
    }
  }
  ~ListLock() {
    if (is_held_)
      g_list_taken.store(false, std::memory_order_release);
  }
  ListLock(const ListLock&) = delete;
  ListLock& operator=(const ListLock&) = delete;
  explicit operator bool() const {
    return is_held_;
  }

 private:
  bool is_held_ = false;
};

void* MapZeroed(size_t size_bytes) {
  void* const memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

bool PrepareList() {
  if (g_list.blocks == nullptr)
    g_list.blocks = static_cast<LiveBlock*>(MapZeroed(sizeof(LiveBlock) * kMostBlocks));
  if (g_list.table == nullptr)
    g_list.table = static_cast<uint32_t*>(MapZeroed(sizeof(uint32_t) * kMostBlocks * 2));
  if (g_list.capacity == 0)
    g_list.capacity = kLeastBlocks;
  return g_list.blocks != nullptr && g_list.table != nullptr;
}

uint32_t TableMask() {
  return g_list.capacity * 2 - 1;
}

uint32_t SlotOf(uintptr_t address) {
  return static_cast<uint32_t>((address * 0x9e3779b97f4a7c15u) >> 32) & TableMask();
}

void PutIntoTable(uint32_t index) {
  uint32_t i = SlotOf(g_list.blocks[index].address);
  while (g_list.table[i] != 0 && g_list.table[i] != kGone)
    i = (i + 1) & TableMask();
  g_list.table[i] = index + 1;
}

// Moves live blocks together and makes room where less than half of it would be free.
void Compact() {
  std::fill_n(g_list.table, TableMask() + 1, 0u);
  LiveBlock* const end = std::remove_if(g_list.blocks, g_list.blocks + g_list.count,
                                        [](const LiveBlock& block) { return block.size == 0; });
  g_list.count = static_cast<uint32_t>(end - g_list.blocks);
  while (g_list.count > g_list.capacity / 2 && g_list.capacity < kMostBlocks)
    g_list.capacity *= 2;
  for (uint32_t i = 0; i < g_list.count; ++i)
    PutIntoTable(i);
}

void NoteBlock(int device, const void* block, int64_t size) {
  const ListLock lock;
  if (!lock || g_list.blocks == nullptr) {
    g_list.incomplete.store(true, std::memory_order_relaxed);
    return;
  }
  if (g_list.count == g_list.capacity)
    Compact();
  const uint64_t serial = g_list.serial++;
  if (g_list.count == g_list.capacity) {
    g_list.incomplete.store(true, std::memory_order_relaxed);
    return;
  }
  g_list.blocks[g_list.count] = {.address = reinterpret_cast<uintptr_t>(block),
                                 .size = size,
                                 .serial = serial,
                                 .device = device};
  PutIntoTable(g_list.count++);
}

// Its size; 0 if it is from before the watch.
int64_t ForgetBlock(int device, const void* block) {
  const ListLock lock;
  if (!lock || g_list.blocks == nullptr)
    return 0;
  const auto address = reinterpret_cast<uintptr_t>(block);
  for (uint32_t i = SlotOf(address); g_list.table[i] != 0; i = (i + 1) & TableMask()) {
    if (g_list.table[i] == kGone)
      continue;
    LiveBlock& found = g_list.blocks[g_list.table[i] - 1];
    if (found.address != address || found.device != device)
      continue;
    g_list.table[i] = kGone;
    return std::exchange(found.size, 0);
  }
  return 0;
}

void Raise(std::atomic<int64_t>* peak, int64_t value) {
  int64_t seen = peak->load(std::memory_order_relaxed);
  while (seen < value && !peak->compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

VRAMSCOPE_NOINLINE void WatchGpuBlock(int device,
                                      const void* block,
                                      int64_t size,
                                      int64_t allocated,
                                      int64_t reserved) {
  if (device >= kWatchedGpus)
    return;
  WatchedDevice& watched = g_watched[device];
  if (size > 0) {
    watched.bytes_given.fetch_add(size, std::memory_order_relaxed);
    watched.blocks_given.fetch_add(1, std::memory_order_relaxed);
    NoteBlock(device, block, size);
  } else {
    watched.bytes_back.fetch_add(-size, std::memory_order_relaxed);
    watched.blocks_back.fetch_add(1, std::memory_order_relaxed);
    ForgetBlock(device, block);
  }
  watched.allocated.store(allocated, std::memory_order_relaxed);
  watched.reserved.store(reserved, std::memory_order_relaxed);
  Raise(&watched.peak_allocated, allocated);
  Raise(&watched.peak_reserved, reserved);
}

VRAMSCOPE_NOINLINE void WatchCpuAlloc(const void* block, int64_t size) {
  WatchedDevice& watched = g_watched[kWatchedCpu];
  NoteBlock(kWatchedCpu, block, size);
  watched.bytes_given.fetch_add(size, std::memory_order_relaxed);
  watched.blocks_given.fetch_add(1, std::memory_order_relaxed);
  const int64_t now = watched.allocated.fetch_add(size, std::memory_order_relaxed) + size;
  Raise(&watched.peak_allocated, now);
}

VRAMSCOPE_NOINLINE void WatchCpuFree(void* block) {
  WatchedDevice& watched = g_watched[kWatchedCpu];
  int64_t size = ForgetBlock(kWatchedCpu, block);
  if (size == 0)
    size = static_cast<int64_t>(malloc_usable_size(block));
  watched.bytes_back.fetch_add(size, std::memory_order_relaxed);
  watched.blocks_back.fetch_add(1, std::memory_order_relaxed);
  watched.allocated.fetch_sub(size, std::memory_order_relaxed);
}

void WatchDevice(int device, int64_t allocated, int64_t reserved) {
  if (!PrepareList())
    g_list.incomplete.store(true, std::memory_order_relaxed);
  WatchedDevice& watched = g_watched[device];
  watched.allocated.store(allocated, std::memory_order_relaxed);
  watched.reserved.store(reserved, std::memory_order_relaxed);
  watched.peak_allocated.store(kNoPeak, std::memory_order_relaxed);
  watched.peak_reserved.store(kNoPeak, std::memory_order_relaxed);
  g_watch_mask.fetch_or(1u << static_cast<unsigned>(device), std::memory_order_release);
}

void WatchForked() {
  if (g_list_taken.load(std::memory_order_relaxed))
    g_list_taken.store(false, std::memory_order_relaxed);
}

void WatchNothing() {
  g_watch_mask.store(0, std::memory_order_release);
  const ListLock lock;
  if (!lock || g_list.blocks == nullptr)
    return;
  std::fill_n(g_list.table, TableMask() + 1, 0u);
  g_list.count = 0;
  g_list.incomplete.store(false, std::memory_order_relaxed);
}

uint64_t WatchedSerial() {
  const ListLock lock;
  return g_list.serial;
}

bool VisitLiveBlocks(uint64_t first, void (*visit)(const LiveBlock&, void*), void* data) {
  const ListLock lock;
  if (!lock || g_list.blocks == nullptr)
    return false;
  const LiveBlock* const end = g_list.blocks + g_list.count;
  const LiveBlock* block =
      std::lower_bound(g_list.blocks, g_list.blocks + g_list.count, first,
                       [](const LiveBlock& a, uint64_t serial) { return a.serial < serial; });
  for (; block != end; ++block) {
    if (block->size != 0)
      visit(*block, data);
  }
  return !g_list.incomplete.load(std::memory_order_relaxed);
}

}  // namespace vramscope::probe
