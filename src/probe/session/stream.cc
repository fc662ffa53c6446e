// SPDX-License-Identifier: Apache-2.0
#include "probe/session/stream.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <type_traits>

#include "probe/session/session.h"

namespace vramscope::probe {

static_assert(std::is_trivially_destructible_v<ThreadState>);
static_assert(std::is_trivially_destructible_v<Stream>);

constinit VRAMSCOPE_TLS ThreadState t_thread{};

namespace {

// A stream without space drops its records. After this many it asks for space again.
constexpr uint32_t kRetryEvery = 4096;
// Events inside of one that is not finished.
constexpr uint32_t kMaxInterruptions = 4096;
constexpr uint32_t kMaxNested = 4;

// A stack of its own for a signal handler lies anywhere: frames there cannot be compared with
// others.
bool IsOnSignalStack() {
  stack_t stack{};
  return syscall(SYS_sigaltstack, nullptr, &stack) == 0 && (stack.ss_flags & SS_ONSTACK) != 0;
}

}  // namespace

bool RecordScope::Begin(Want want) {
  if (want == Want::kTensor && g_flags.paused.load(std::memory_order_relaxed))
    return false;
  return SessionEnsureStarted();
}

RecordScope::Entry RecordScope::EnterAgain(uintptr_t frame) {
  constexpr Entry kOwn{true, nullptr}, kNone{false, nullptr};
  if (t_thread.busy == kSuppressed)
    return kNone;
  SystemCalls guard;
  Stream* const own = t_thread.stream;
  if (frame >= t_thread.busy && !IsOnSignalStack()) {
    t_thread.nested = 0;
    if (own != nullptr)
      own->Recover();
    return kOwn;
  }
  const uint64_t progress = own != nullptr ? own->progress() : 0;
  if (progress != t_thread.interrupted_at) {
    t_thread.interrupted_at = progress;
    t_thread.interruptions = 0;
  }
  if (++t_thread.interruptions > kMaxInterruptions) {
    // No handler does so much: it was left by longjmp, to a frame further in than the one that is
    // gone. The stream stays valid even if this is wrong and the thread returns to that frame.
    t_thread.interruptions = 0;
    t_thread.nested = 0;
    t_thread.stream = nullptr;
    return kOwn;
  }
  if (t_thread.nested == kMaxNested) {
    CountLoss(format::Loss::kThreadLimit);
    return kNone;
  }
  Stream* const stream = StreamPool::Borrow();
  if (stream == nullptr)
    return kNone;
  ++t_thread.nested;
  if (stream->scope_path() != t_thread.scope)
    stream->EnterScope();
  return {false, stream};
}

void RecordScope::LeaveNested(Stream* stream) {
  StreamPool::GiveBack(stream);
  --t_thread.nested;
}

Stream* RecordScope::Acquire() {
  SystemCalls guard;
  return t_thread.stream = StreamPool::Take(t_thread.stream);
}

void Stream::Renew() {
  DropSpace();
  // Zeroed pages are a valid Stream, but for what is set here.
  madvise(static_cast<void*>(this), sizeof *this, MADV_DONTNEED);
  images_generation = ~uint64_t{0};
  session_ = g_flags.session.load(std::memory_order_relaxed);
  id_ = NewStreamId();
}

// All of it in the thread's own memory: what interrupts it, and never comes back, leaves the seal
// that was there or the next one.
bool Stream::NextSpan(size_t need_bytes) {
  if (need_bytes > static_cast<size_t>(end_ - cursor_))
    return NextChunk(need_bytes);
  Seal();
  BeginSpan(need_bytes);
  return true;
}

// An eighth of what the chunk has: a program that writes little and is killed leaves little
// unsealed.
void Stream::BeginSpan(size_t need_bytes) {
  const auto left = static_cast<size_t>(end_ - cursor_);
  size_t span = static_cast<size_t>(cursor_ - begin_) / 8;
  if (span > format::kSealEveryBytes)
    span = format::kSealEveryBytes;
  if (span < need_bytes)
    span = need_bytes;
  stop_ = cursor_ + (span < left ? span : left);
}

bool Stream::NextChunk(size_t need_bytes) {
  if (retry_in_ != 0 && --retry_in_ != 0) {
    CountLoss(format::Loss::kFileFull);
    return false;
  }
  need_bytes += format::EncodedBound(format::ScopeIs{.scope = scope_});
  if (need_bytes > format::kFirstChunkBytes - sizeof(format::ChunkHeader)) {
    CountLoss(format::Loss::kRecordTooLarge);
    return false;
  }
  SystemCalls guard;
  if (header_ != nullptr)
    SealChunk();
  const size_t size_bytes = sequence_ == 0 ? format::kFirstChunkBytes : format::kChunkBytes;
  const bool has_room = end_ != space_end_ || NextSpace(size_bytes);
  if (!has_room || !PrepareChunk(session_, end_, size_bytes)) {
    DropSpace();
    if (session_ != g_flags.session.load(std::memory_order_relaxed))
      return false;  // that recording is over
    if (State() != SessionState::kOn)
      return false;  // forked in here by a signal handler: the child has no file until its next
                     // event
    retry_in_ = kRetryEvery;
    CountLoss(format::Loss::kFileFull);
    return false;
  }
  BeginChunk(end_, size_bytes);
  BeginSpan(need_bytes);
  return true;
}

// A busy thread maps more and more at once: while one maps or unmaps, no other thread of the
// program can, nor can pages be prepared.
bool Stream::NextSpace(size_t chunk_bytes) {
  const uint32_t most_bytes = MostSpaceBytes();
  DropSpace();
  const uint32_t grown = space_bytes_ < most_bytes / 4 ? space_bytes_ * 4 : most_bytes;
  space_bytes_ = static_cast<uint32_t>(
      grown > chunk_bytes ? grown / format::kPageBytes * format::kPageBytes : chunk_bytes);
  space_ = MapSpace(session_, space_bytes_);
  if (space_ == nullptr && grown > chunk_bytes) {
    space_bytes_ = static_cast<uint32_t>(chunk_bytes);
    space_ = MapSpace(session_, space_bytes_);
  }
  if (space_ == nullptr) {
    space_bytes_ = 0;
    return false;
  }
  space_end_ = space_ + space_bytes_;
  end_ = space_;
  return true;
}

void Stream::DropSpace() {
  uint8_t* const space = space_;
  const auto size_bytes = static_cast<size_t>(space_end_ - space_);
  // First: a signal handler that is left by longjmp comes back to what is here.
  header_ = nullptr;
  cursor_ = stop_ = end_ = begin_ = space_ = space_end_ = nullptr;
  if (space != nullptr)
    UnmapSpace(space, size_bytes);
}

void Stream::BeginChunk(uint8_t* memory, size_t size_bytes) {
  auto* const header = reinterpret_cast<format::ChunkHeader*>(memory);
  header->size_bytes = static_cast<uint32_t>(size_bytes);
  header->stream = id_;
  header->sequence = sequence_++;
  const base::ClockPair clocks = base::ReadClocks(g_flags.use_tsc);
  header->base_ticks = clocks.ticks;
  header->base_ns = clocks.ns;
  header->tid = tid_;
  header->head.store(format::ChunkHead(memory, header->size_bytes), std::memory_order_relaxed);
  // Last: readers look for the magic.
  std::atomic_thread_fence(std::memory_order_release);
  header->magic = format::kChunkMagic;
  CountChunk(session_);
  header_ = header;
  begin_ = cursor_ = memory + sizeof(format::ChunkHeader);
  end_ = memory + size_bytes;
  delta_ = {.time = header->base_ticks, .address = 0};
  if (scope_ != 0) {
    cursor_ = format::Encode(format::ScopeIs{.scope = scope_}, cursor_, &delta_);
    Commit();
  }
}

void Stream::Seal() {
  if (header_ == nullptr)
    return;
  const uint32_t committed = header_->committed_bytes.load(std::memory_order_relaxed);
  const uint64_t seal = header_->seal.load(std::memory_order_relaxed);
  // One store for both: the sealed length and the checksum.
  header_->seal.store(format::ExtendSeal(seal, begin_, committed), std::memory_order_release);
}

void Stream::SealChunk() {
  Seal();
  header_->crc32c = format::HighHalf(header_->seal.load(std::memory_order_relaxed));
  header_->sealed.store(1, std::memory_order_release);
}

// Committed records are whole. The rest of the chunk becomes a chunk of its own, since what records
// are relative to (DeltaState) may be ahead of that. The part before it stays mapped, so that even
// a thread that returned to it would write into memory of ours.
void Stream::Recover() {
  scope_path_ = 0;
  scope_ = 0;
  if (header_ == nullptr)
    return;
  format::ChunkHeader* const former = header_;
  auto* const chunk = reinterpret_cast<uint8_t*>(former);
  const size_t total = static_cast<size_t>(end_ - chunk);
  const size_t used = sizeof *former + former->committed_bytes.load(std::memory_order_relaxed);
  const size_t rest = (used + format::kPageBytes - 1) / format::kPageBytes * format::kPageBytes;
  if (rest + 2 * format::kPageBytes > total) {
    cursor_ = stop_ = end_;
    return;
  }
  std::memset(chunk + used, 0, total - used);
  SealChunk();
  uint8_t* const space = space_;
  // First, as in DropSpace(): what was unmapped may be the program's by the next time.
  space_ = chunk + rest;
  if (chunk != space)
    UnmapSpace(space, static_cast<size_t>(chunk - space));
  BeginChunk(chunk + rest, total - rest);
  BeginSpan(0);
  // Last: until then readers pass over the new chunk, in which nothing is yet.
  std::atomic_thread_fence(std::memory_order_release);
  former->size_bytes = static_cast<uint32_t>(rest);
  former->head.store(format::ChunkHead(chunk, former->size_bytes), std::memory_order_release);
}

void Stream::LeaveToParent() {
  if (header_ == nullptr)
    return;
  auto* const chunk = reinterpret_cast<uint8_t*>(header_);
  mmap(chunk, static_cast<size_t>(space_end_ - chunk), PROT_READ | PROT_WRITE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
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

bool Stream::CountSight(uint64_t kind, Sight* sight) {
  if (sight == nullptr)
    sight = sights_.Add(kind);
  sights_are_full_ = sight == nullptr;
  if (sights_are_full_)
    return false;
  ++sight->count;
  return true;
}

constinit std::atomic<void (*)()> g_on_anchor{nullptr};

void Stream::AppendAnchor() {
  // 12 ms, 25, 50, and from then on 0.1 s of a time stamp counter; 2.7 times as much of a clock in
  // nanoseconds. The first come soon: how well a short program's stamps are known depends on how
  // far its pairs are apart.
  constexpr uint64_t kFirstAnchorTicks = uint64_t{1} << 25;
  constexpr uint32_t kMostSteps = 3;
  const base::ClockPair clocks = base::ReadClocks(g_flags.use_tsc);
  anchor_due_ = clocks.ticks + (kFirstAnchorTicks << anchors_);
  anchors_ += anchors_ < kMostSteps ? 1 : 0;
  Append(format::Anchor{.time = clocks.ticks, .monotonic_ns = static_cast<uint64_t>(clocks.ns)});
  if (auto* const on_anchor = g_on_anchor.load(std::memory_order_relaxed))
    on_anchor();
}

void Stream::ResetStackTables() {
  codes_.Clear();
  nodes_.Clear();
  stacks_.Clear();
  // The compaction of a ring counts on it (pipeline/compact/): ids from before are not written
  // any more.
  known_walks_.Clear();
  CountLoss(format::Loss::kTableReset);
}

KnownStack* Stream::KeepStack(uint64_t hash, uint32_t id, uintptr_t module) {
  KnownStack* stack = stacks_.Add(hash);
  if (stack == nullptr) {
    stacks_.Clear();
    stack = stacks_.Add(hash);
  }
  stack->id = id;
  stack->module = module;
  return stack;
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
