// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstring>

#include "probe/hooks/nvtx/nvtx.h"
#include "probe/session/tables.h"

namespace vramscope::probe::nvtx {
namespace {

constexpr uint32_t kArenaBytes = 4 << 20;
constexpr uint32_t kSlots = 1 << 16;
constexpr uint32_t kMaxProbes = 64;

alignas(Registered) constinit char g_arena[kArenaBytes]{};
constinit std::atomic<uint32_t> g_used{0};
constinit std::atomic<uint32_t> g_slots[kSlots]{};  // offset in the arena plus 1

Registered* At(uint32_t slot_value) {
  return reinterpret_cast<Registered*>(g_arena + (slot_value - 1));
}

uint64_t Hash(const char* text, size_t size_bytes) {
  uint64_t hash = size_bytes;
  for (size_t i = 0; i < size_bytes; ++i)
    hash = HashMix(hash, static_cast<unsigned char>(text[i]));
  return hash;
}

bool Is(const Registered& string, uint64_t hash, const char* text, size_t size_bytes) {
  return string.hash == hash && string.size_bytes == size_bytes &&
         std::memcmp(string.text, text, size_bytes) == 0;
}

// 0 when the arena is full.
uint32_t Store(uint64_t hash, const char* text, size_t size_bytes) {
  const auto need = static_cast<uint32_t>((offsetof(Registered, text) + size_bytes + 8) & ~7ull);
  if (g_used.load(std::memory_order_relaxed) > kArenaBytes - need)
    return 0;
  const uint32_t at = g_used.fetch_add(need, std::memory_order_relaxed);
  if (at > kArenaBytes - need)
    return 0;
  Registered* const string = At(at + 1);
  string->hash = hash;
  string->size_bytes = static_cast<uint32_t>(size_bytes);
  std::memcpy(string->text, text, size_bytes);
  return at + 1;
}

}  // namespace

const Registered* Register(const char* text, size_t size_bytes) {
  const uint64_t hash = Hash(text, size_bytes);
  uint32_t ours = 0;
  for (uint32_t i = 0; i < kMaxProbes; ++i) {
    auto& slot = g_slots[((hash >> 32) + i) & (kSlots - 1)];
    uint32_t found = slot.load(std::memory_order_acquire);
    if (found == 0) {
      if (ours == 0 && (ours = Store(hash, text, size_bytes)) == 0)
        return nullptr;
      if (slot.compare_exchange_strong(found, ours, std::memory_order_acq_rel))
        return At(ours);
    }
    if (Is(*At(found), hash, text, size_bytes))
      return At(found);
  }
  return nullptr;
}

const Registered* FromHandle(const void* handle) {
  const auto offset = reinterpret_cast<uintptr_t>(handle) - reinterpret_cast<uintptr_t>(g_arena);
  if (offset >= g_used.load(std::memory_order_acquire) || offset >= kArenaBytes || offset % 8 != 0)
    return nullptr;
  const auto* const string = static_cast<const Registered*>(handle);
  return string->size_bytes < kArenaBytes - offset ? string : nullptr;
}

}  // namespace vramscope::probe::nvtx
