// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "base/cgroup.h"
#include "base/raw_file.h"
#include "format/layout.h"
#include "probe/session/stream.h"

namespace vramscope::probe {
namespace {

// Streams whose thread has ended, each slot taken and given by one exchange.
constexpr uint32_t kIdleSlots = 256;
constinit std::atomic<Stream*> g_idle[kIdleSlots]{};
constinit std::atomic<uint32_t> g_count{0};
constinit pthread_key_t g_stream_key{};
constinit bool g_have_stream_key = false;

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

constexpr std::string_view kPod = "pod";
constexpr size_t kShownDigits = 12;  // of a container's id, as engines print it

// `key=value` pairs of one note.
class Place {
 public:
  void Add(std::string_view key, std::string_view value) {
    if (size_ > 0)
      Append(",");
    Append(key);
    Append("=");
    Append({value.data(), std::min(value.size(), kLongest)});
  }
  // The same with `-` in place of `_`.
  void AddUid(std::string_view key, std::string_view uid) {
    Add(key, uid);
    std::replace(text_ + size_ - std::min(uid.size(), kLongest), text_ + size_, '_', '-');
  }
  format::Bytes text() const { return {text_, size_}; }

 private:
  static constexpr size_t kLongest = 80;
  static constexpr size_t kMostPairs = std::size(format::kPlaceVariables);

  void Append(std::string_view part) {
    std::memcpy(text_ + size_, part.data(), part.size());
    size_ += part.size();
  }

  char text_[kMostPairs * (kLongest + 16)];
  size_t size_ = 0;
};

// The pod or container that the process's control groups name, where no variable names it.
void AddCgroup(Place* place) {
  const int fd = base::OpenFile("/proc/self/cgroup", O_RDONLY);
  if (fd < 0)
    return;
  char text[4096];
  const ssize_t got = base::ReadFile(fd, text, sizeof text);
  base::CloseFile(fd);
  const base::CgroupIds ids =
      base::FindCgroupIds({text, got > 0 ? static_cast<size_t>(got) : size_t{0}});
  if (!ids.pod.empty())
    place->AddUid(kPod, ids.pod);
  else if (!ids.container.empty())
    place->Add(kPod, {ids.container.data(), kShownDigits});
}

// The other names of its place.
void NotePlace(Stream* stream) {
  Place place;
  bool has_pod = false;
  for (const format::PlaceVariables& named : format::kPlaceVariables) {
    for (const char* variable : named.variables) {
      const char* value = variable == nullptr ? nullptr : getenv(variable);
      if (value == nullptr || *value == '\0')
        continue;
      place.Add(named.key, value);
      has_pod = has_pod || named.key == kPod;
      break;
    }
  }
  if (!has_pod)
    AddCgroup(&place);
  if (place.text().size > 0)
    Note(stream, format::kPlaceNote, place.text());
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
  if (!g_have_stream_key)
    g_have_stream_key = pthread_key_create(&g_stream_key, ThreadEnds) == 0;
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
  if (g_have_stream_key)
    pthread_setspecific(g_stream_key, stream);
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
