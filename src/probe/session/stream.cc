// SPDX-License-Identifier: Apache-2.0
#include "probe/session/stream.h"

#include <sys/mman.h>

#include <cstring>
#include <type_traits>

#include "base/crc32c.h"
#include "probe/session/stream_pool.h"

namespace vramscope::probe {

static_assert(std::is_trivially_destructible_v<ThreadState>);
static_assert(std::is_trivially_destructible_v<Stream>);

constinit VRAMSCOPE_TLS ThreadState t_thread{};

Stream* RecordScope::Acquire() {
  if (!SessionEnsureStarted())
    return nullptr;
  return t_thread.stream = StreamPool::Take(t_thread.stream);
}

void Stream::Renew() {
  if (header_ != nullptr) {
    auto* const chunk = reinterpret_cast<uint8_t*>(header_);
    // Not from its header: that file may be gone.
    UnmapChunk(chunk, static_cast<uint32_t>(end_ - chunk));
  }
  // Zeroed pages are a valid Stream, but for what is set here.
  madvise(static_cast<void*>(this), sizeof *this, MADV_DONTNEED);
  images_generation = ~uint64_t{0};
  session_ = g_flags.session.load(std::memory_order_relaxed);
  id_ = NewStreamId();
}

bool Stream::NextChunk(size_t need_bytes) {
  if (full_) {
    CountLoss(format::Loss::kFileFull);
    return false;
  }
  const format::ScopeIs scope{.scope = scope_};
  need_bytes += format::EncodedBound(scope);
  if (need_bytes > format::kFirstChunkBytes - sizeof(format::ChunkHeader)) {
    CountLoss(format::Loss::kRecordTooLarge);
    return false;
  }
  const auto size_bytes =
      static_cast<uint32_t>(sequence_ == 0 ? format::kFirstChunkBytes : format::kChunkBytes);
  uint8_t* const memory = MapNewChunk(session_, size_bytes);
  if (header_ != nullptr) {
    header_->crc32c = base::Crc32c(begin_, static_cast<size_t>(cursor_ - begin_));
    header_->sealed.store(1, std::memory_order_release);
    UnmapChunk(reinterpret_cast<uint8_t*>(header_), header_->size_bytes);
    header_ = nullptr;
    cursor_ = end_ = begin_ = nullptr;
  }
  if (memory == nullptr) {
    if (session_ != g_flags.session.load(std::memory_order_relaxed))
      return false;  // that recording is over
    full_ = true;
    CountLoss(format::Loss::kFileFull);
    return false;
  }
  header_ = reinterpret_cast<format::ChunkHeader*>(memory);
  header_->size_bytes = size_bytes;
  header_->stream = id_;
  header_->sequence = sequence_++;
  header_->base_ticks = Now();
  header_->base_ns = base::MonotonicNs();
  header_->tid = tid_;
  // Last: readers look for the magic.
  std::atomic_thread_fence(std::memory_order_release);
  header_->magic = format::kChunkMagic;
  begin_ = cursor_ = memory + sizeof(format::ChunkHeader);
  end_ = memory + size_bytes;
  delta_ = {.time = header_->base_ticks, .address = 0};
  if (scope_ != 0) {
    cursor_ = format::Encode(scope, cursor_, &delta_);
    Commit();
  }
  return true;
}

void Stream::EnterScope() {
  scope_path_ = t_thread.scope;
  uint32_t id = scope_path_ != 0 ? scopes_.Find(scope_path_) : 0;
  if (id == 0 && scope_path_ != 0 && t_thread.scopes != nullptr)
    id = DefineScopes(*t_thread.scopes);
  if (t_thread.scopes != nullptr) {
    if (const uint32_t lost = t_thread.scopes->TakeLost())
      CountLoss(format::Loss::kScopeTooDeep, lost);
  }
  if (id == scope_)
    return;
  scope_ = id;
  Append(format::ScopeIs{.scope = id});
}

uint32_t Stream::DefineScopes(const ScopeStack& scopes) {
  uint32_t id = 0;
  for (uint32_t i = 0; i < scopes.size(); ++i) {
    const uint64_t path = scopes.level(i).path;
    if (path == 0)
      continue;  // a push is under way, below this signal handler
    const uint32_t parent = id;
    id = scopes_.Find(path);
    if (id == 0) {
      const uint32_t name = InternString(scopes.text(i), scopes.level(i).size_bytes);
      id = NewId();
      if (!Append(format::Scope{.id = id, .parent = parent, .name = name}))
        return 0;
      if (!scopes_.Insert(path, id)) {
        scopes_.Clear();
        scopes_.Insert(path, id);
        CountLoss(format::Loss::kTableReset);
      }
    }
    if (path == scope_path_)
      return id;
  }
  return 0;
}

bool Stream::CountSight(uint64_t kind) {
  uint64_t sight = 1;
  while (sight < kEarlySights && sights_.Find(kind + sight) != 0)
    ++sight;
  return sights_.Insert(kind + sight, 1);
}

void Stream::AppendAnchor() {
  // About 0.1 s of a time stamp counter, 0.27 s of a clock in nanoseconds.
  constexpr uint64_t kAnchorEveryTicks = uint64_t{1} << 28;
  const uint64_t before = Now();
  const int64_t monotonic_ns = base::MonotonicNs();
  const uint64_t ticks = before + (Now() - before) / 2;
  anchor_due_ = ticks + kAnchorEveryTicks;
  Append(format::Anchor{.time = ticks, .monotonic_ns = static_cast<uint64_t>(monotonic_ns)});
}

void Stream::ResetStackTables() {
  codes_.Clear();
  nodes_.Clear();
  for (auto& slot : stacks_)
    slot = {0, 0};
  CountLoss(format::Loss::kTableReset);
}

uint32_t Stream::InternString(const char* text, size_t size_bytes) {
  if (size_bytes == 0)
    return 0;
  uint64_t hash = size_bytes;
  for (size_t i = 0; i < size_bytes; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    const size_t left = size_bytes - i;
    std::memcpy(&word, text + i, left < sizeof word ? left : sizeof word);
    hash = HashMix(hash, word);
  }
  if (const uint32_t known = strings_.Find(hash))
    return known;
  const uint32_t id = NewId();
  if (!Append(format::String{.id = id, .text = {text, size_bytes}}))
    return 0;
  if (!strings_.Insert(hash, id)) {
    strings_.Clear();
    strings_.Insert(hash, id);
  }
  return id;
}

uint32_t Stream::InternLiteral(const char* literal) {
  const uint64_t hash = HashMix(1, reinterpret_cast<uintptr_t>(literal));
  if (const uint32_t known = strings_.Find(hash))
    return known;
  const uint32_t id = InternString(literal, std::strlen(literal));
  if (id != 0)
    strings_.Insert(hash, id);
  return id;
}

}  // namespace vramscope::probe
