// SPDX-License-Identifier: Apache-2.0
#include "probe/session/scopes.h"

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>

#include "base/compiler.h"
#include "probe/session/session.h"
#include "probe/session/stream.h"
#include "probe/session/tables.h"

namespace vramscope::probe {
namespace {

constinit pthread_key_t g_key{};
constinit bool g_have_key = false;

uint64_t HashName(const char* name, size_t size_bytes) {
  uint64_t hash = size_bytes;
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= size_bytes; at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, name + at, sizeof word);
    hash = HashMix(hash, word);
  }
  uint64_t rest = 0;
  for (; at < size_bytes; ++at)
    rest = rest << 8 | static_cast<unsigned char>(name[at]);
  return HashMix(hash, rest);
}

uint64_t HashPath(uint64_t parent, uint64_t name) {
  const uint64_t hash = HashMix(parent, name);
  return hash != 0 ? hash : 1;
}

void ThreadEnds(void* value) {
  if (t_thread.scopes != value)
    return;  // a forked child ends: the memory is its own copy
  t_thread.scopes = nullptr;
  t_thread.scope = 0;
  munmap(value, sizeof(ScopeStack));
}

VRAMSCOPE_NOINLINE ScopeStack* NewStack() {
  if (!g_have_key)
    return nullptr;
  void* const memory =
      mmap(nullptr, sizeof(ScopeStack), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return nullptr;
  pthread_setspecific(g_key, memory);
  return t_thread.scopes = static_cast<ScopeStack*>(memory);
}

}  // namespace

size_t CutText(const char* text, size_t limit_bytes) {
  const size_t size = strnlen(text, limit_bytes + 1);
  if (size <= limit_bytes)
    return size;
  size_t end = limit_bytes;
  while (end != 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
    --end;
  return end;
}

void ScopeStack::Push(uint64_t domain, const char* name, size_t size_bytes) {
  const uint32_t at = size_;
  if (VRAMSCOPE_UNLIKELY(at >= kMaxScopeDepth)) {
    for (Beyond& beyond : beyond_) {
      if (beyond.count != 0 && beyond.domain != domain)
        continue;
      beyond = {domain, beyond.count + 1};
      ++beyond_total_;
      break;
    }
    ++lost_;
    return;
  }
  const uint64_t parent = path_;
  Level& level = levels_[at];
  // The level is claimed before it is filled, so that a signal handler's scope takes the next one.
  level.path = 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  size_ = at + 1;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(text_[SlotOf(at)], name, size_bytes);
  level.name = HashName(name, size_bytes);
  level.domain = domain;
  level.size_bytes = static_cast<uint16_t>(size_bytes);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  level.path = HashPath(parent, level.name);
  path_ = level.path;
}

void ScopeStack::Pop(uint64_t domain) {
  if (VRAMSCOPE_UNLIKELY(beyond_total_ != 0) && PopBeyond(domain))
    return;
  for (uint32_t i = size_; i-- != 0;) {
    if (levels_[i].domain == domain)
      return Remove(i);
  }
}

// A domain's scopes beyond the limit are younger than those that were kept.
bool ScopeStack::PopBeyond(uint64_t domain) {
  for (Beyond& beyond : beyond_) {
    if (beyond.count == 0 || beyond.domain != domain)
      continue;
    --beyond.count;
    --beyond_total_;
    return true;
  }
  return false;
}

void ScopeStack::Remove(uint32_t at) {
  if (VRAMSCOPE_UNLIKELY(at + 1 != size_)) {
    // Ranges of two domains cross: those inside move out by one, with their texts.
    const auto freed = static_cast<uint8_t>(SlotOf(at) + 1);
    uint64_t parent = at != 0 ? levels_[at - 1].path : 0;
    for (uint32_t i = at; i + 1 < size_; ++i) {
      const auto slot = static_cast<uint8_t>(SlotOf(i + 1) + 1);
      levels_[i] = levels_[i + 1];
      levels_[i].slot = slot;
      levels_[i].path = parent = HashPath(parent, levels_[i].name);
    }
    levels_[size_ - 1].slot = freed;
  }
  --size_;
  path_ = size_ != 0 ? levels_[size_ - 1].path : 0;
}

void ScopesLoad() {
  if (!g_have_key)
    g_have_key = pthread_key_create(&g_key, ThreadEnds) == 0;
}

void ScopePush(uint64_t domain, const char* name, size_t size_bytes) {
  if (SessionIsOff())
    return;
  ScopeStack* stack = t_thread.scopes;
  if (VRAMSCOPE_UNLIKELY(stack == nullptr) && (stack = NewStack()) == nullptr)
    return;
  stack->Push(domain, name, size_bytes);
  t_thread.scope = stack->path();
}

void ScopePushText(uint64_t domain, const char* name) {
  if (SessionIsOff())
    return;
  if (name == nullptr || *name == '\0')
    name = kNamelessScope;
  ScopePush(domain, name, CutText(name, kMaxScopeNameBytes));
}

void ScopePop(uint64_t domain) {
  ScopeStack* const stack = t_thread.scopes;
  if (stack == nullptr)
    return;
  stack->Pop(domain);
  t_thread.scope = stack->path();
}

}  // namespace vramscope::probe
