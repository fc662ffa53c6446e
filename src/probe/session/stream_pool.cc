// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <iterator>

#include "format/layout.h"
#include "probe/session/stream.h"

namespace vramscope::probe {
namespace {

// Streams whose thread has ended, each slot taken and given by one exchange.
constexpr uint32_t kIdleSlots = 256;
constinit std::atomic<Stream*> g_idle[kIdleSlots]{};
constinit std::atomic<uint32_t> g_count{0};
constinit pthread_key_t g_key{};
constinit bool g_have_key = false;

Stream* NewMemory() {
  void* memory =
      mmap(nullptr, sizeof(Stream), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  // Zeroed pages are a valid Stream: every member's default is zero, but for images_generation.
  return memory != MAP_FAILED ? static_cast<Stream*>(memory) : nullptr;
}

void Note(Stream* stream, const char* key, format::Bytes value) {
  stream->Append(format::Runtime{.key = {key, std::strlen(key)}, .value = value});
}

// The process's place in a distributed training, for the report's rows.
void NoteRank(Stream* stream) {
  for (const char* variable : format::kRankVariables) {
    const char* rank = getenv(variable);
    if (rank == nullptr || *rank == '\0')
      continue;
    return Note(stream, "rank", {rank, strnlen(rank, 16)});
  }
}

// The other names of its place.
void NotePlace(Stream* stream) {
  constexpr size_t kLongest = 80;
  char text[std::size(format::kPlaceVariables) * (kLongest + 16)];
  size_t size = 0;
  const auto append = [&](const char* part, size_t length) {
    std::memcpy(text + size, part, length);
    size += length;
  };
  for (const format::PlaceVariables& place : format::kPlaceVariables) {
    for (const char* variable : place.variables) {
      const char* value = variable == nullptr ? nullptr : getenv(variable);
      if (value == nullptr || *value == '\0')
        continue;
      if (size > 0)
        append(",", 1);
      append(place.key, std::strlen(place.key));
      append("=", 1);
      append(value, strnlen(value, kLongest));
      break;
    }
  }
  if (size > 0)
    Note(stream, format::kPlaceNote, {text, size});
}

Stream* TakeIdle() {
  for (auto& slot : g_idle) {
    if (slot.load(std::memory_order_relaxed) == nullptr)
      continue;
    if (Stream* stream = slot.exchange(nullptr, std::memory_order_acquire))
      return stream;
  }
  return nullptr;
}

}  // namespace

void StreamPool::Load() {
  if (!g_have_key)
    g_have_key = pthread_key_create(&g_key, ThreadEnds) == 0;
}

Stream* StreamPool::Find(Stream* old, bool is_owner) {
  Stream* stream = old != nullptr ? old : TakeIdle();
  if (stream == nullptr) {
    if (g_count.fetch_add(1, std::memory_order_relaxed) >= kMaxStreams) {
      g_count.fetch_sub(1, std::memory_order_relaxed);
      CountLoss(format::Loss::kThreadLimit);
      return nullptr;
    }
    stream = NewMemory();
    if (stream == nullptr) {
      g_count.fetch_sub(1, std::memory_order_relaxed);
      CountLoss(format::Loss::kFileFull);
      return nullptr;
    }
  }
  // Also where it is new, and has no number yet.
  if (stream->id_ == 0 || stream->session_ != g_flags.session.load(std::memory_order_relaxed))
    stream->Renew();
  if (stream->id_ == 1 && stream->sequence_ == 0) {
    NoteRank(stream);
    NotePlace(stream);
    if (g_flags.unpooled)
      Note(stream, "unpooled", {"the frameworks' memory caches are off", 37});
  }
  const auto tid = static_cast<uint32_t>(syscall(SYS_gettid));
  if (is_owner || stream->tid_ != tid) {
    stream->tid_ = tid;
    stream->known_walks_.Clear();
    char name[17] = {};
    prctl(PR_GET_NAME, name);
    stream->Append(format::Thread{.tid = tid, .name = {name, std::strlen(name)}});
  }
  return stream;
}

Stream* StreamPool::Take(Stream* old) {
  Stream* const stream = Find(old, true);
  if (stream == nullptr)
    return nullptr;
  if (g_have_key)
    pthread_setspecific(g_key, stream);
  return stream;
}

Stream* StreamPool::Borrow() {
  return Find(nullptr, false);
}

void StreamPool::GiveBack(Stream* stream) {
  stream->Seal();
  for (auto& slot : g_idle) {
    Stream* empty = nullptr;
    if (slot.load(std::memory_order_relaxed) == nullptr &&
        slot.compare_exchange_strong(empty, stream, std::memory_order_release)) {
      return;
    }
  }
  // More idle streams than slots: this one's memory and chunk stay as they are.
}

// Runs once for each round of thread-specific destructors. Events after it (another destructor
// frees a tensor) take a stream again, which arms the key for the next round.
void StreamPool::ThreadEnds(void* value) {
  auto* stream = static_cast<Stream*>(value);
  if (t_thread.stream != stream)
    return;  // a forked child ends: the stream is its parent's
  if (t_thread.busy > kSuppressed)
    stream->Recover();  // the thread was cancelled in the middle of an event
  t_thread.busy = 0;
  t_thread.nested = 0;
  t_thread.stream = nullptr;
  GiveBack(stream);
}

void StreamPool::ForgetAll() {
  for (auto& slot : g_idle)
    slot.store(nullptr, std::memory_order_relaxed);
  g_count.store(0, std::memory_order_relaxed);
}

}  // namespace vramscope::probe
