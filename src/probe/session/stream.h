// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "base/compiler.h"
#include "format/encoder.h"
#include "format/layout.h"
#include "probe/session/native_stack_cache.h"
#include "probe/session/scopes.h"
#include "probe/session/session.h"
#include "probe/session/tables.h"

namespace vramscope::probe {

// While it lives no signal handler of the program runs in this thread, and afterwards errno is what
// it was. For whatever must not be left half done: a handler can leave by longjmp, and a thread can
// be cancelled. By the system call's number, since the C library keeps two signals of its own,
// cancellation among them, out of reach. Faults are not held back: a sandbox answers system calls
// in a handler of SIGSYS.
class SystemCalls {
 public:
  SystemCalls() : errno_(errno) {
    uint64_t held = ~uint64_t{0};
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS})
      held &= ~(uint64_t{1} << (fault - 1));
    is_held_ = syscall(SYS_rt_sigprocmask, SIG_SETMASK, &held, &mask_, sizeof mask_) == 0;
  }
  ~SystemCalls() {
    if (is_held_)
      syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask_, nullptr, sizeof mask_);
    errno = errno_;
  }
  SystemCalls(const SystemCalls&) = delete;
  SystemCalls& operator=(const SystemCalls&) = delete;

 private:
  const int errno_;
  uint64_t mask_ = 0;
  bool is_held_ = false;
};

class Stream;

// Hands streams to threads and takes them back when threads end. Bounded: kMaxStreams at once.
class StreamPool {
 public:
  static constexpr uint32_t kMaxStreams = 4096;

  static void Load();
  // A stream of this recording for the calling thread, with a Thread record written; nullptr beyond
  // the bound. `old`: the thread's stream of an ended recording, or nullptr.
  static Stream* Take(Stream* old);
  // Another stream for the calling thread, for one event inside of another, and its return.
  static Stream* Borrow();
  static void GiveBack(Stream* stream);
  // In a forked child: the streams are the parent's.
  static void ForgetAll();

 private:
  static Stream* Find(Stream* old, bool is_owner);
  static void ThreadEnds(void* stream);
};

// A whole stack that the reader knows.
struct KnownStack {
  uint64_t hash;
  // Address of the innermost torch.nn.Module that runs, 0 if none does; kSetUp bits beside it.
  uintptr_t module;
  uint32_t id;
  // TorchSet::taken_out() + 1 when that module had its name; stays 0 if a module is moved, so
  // that each event says so.
  uint32_t modules_seen;
};

// The stack builds a module or moves one. Objects' addresses leave these bits free.
inline constexpr uintptr_t kSetUpBuilds = 1, kSetUpMoves = 2;
inline constexpr uintptr_t kSetUp = kSetUpBuilds | kSetUpMoves;

// Called ten times a second, at most, by each thread that records: from inside of an event.
extern constinit std::atomic<void (*)()> g_on_anchor;

// One thread's writer: a chunk of the live file that only this thread writes, and tables of the
// strings, codes and stacks that the file already defines. When a thread ends its stream waits for
// the next new thread, so that a storm of short threads costs neither memory nor file.
//
//   begin_ |rec|rec|rec|.......| stop_ ... end_      a chunk, mapped and allocated on disk
//                      ^ cursor_: a record is written here, then committed by one release store
//
// Hooks append through RecordScope, which takes the stream of their thread. Without space the
// record is a counted loss. Not thread-safe: use it only through RecordScope.
class Stream {
  // The fields that every event needs, in two cache lines.
  alignas(64) uint8_t* cursor_ = nullptr;
  uint8_t* stop_ = nullptr;  // no record goes beyond it unlooked: the span's end, at most end_
  uint8_t* begin_ = nullptr;
  format::ChunkHeader* header_ = nullptr;
  format::DeltaState delta_;
  uint64_t anchor_due_ = 0;  // ticks
  uint32_t anchors_ = 0;     // until they are as far apart as they get
  uint64_t scope_path_ = 0;
  uint32_t session_ = 0;
  bool sights_are_full_ = false;

 public:
  // Appends one record and commits it. False, and a counted loss, if the stream has no space.
  template <class Record>
  VRAMSCOPE_ALWAYS_INLINE bool Append(const Record& record) {
    const size_t bound = format::EncodedBound(record);
    if (VRAMSCOPE_UNLIKELY(bound > static_cast<size_t>(stop_ - cursor_)) && !NextSpan(bound)) {
      return false;
    }
    cursor_ = format::Encode(record, cursor_, &delta_);
    Commit();
    if (VRAMSCOPE_UNLIKELY(delta_.time >= anchor_due_))
      AppendAnchor();
    return true;
  }

  // Ids for this stream, defining what is new. 0 when the text is empty or could not be written.
  uint32_t InternString(const char* text, size_t size_bytes);
  // The same for a literal, looked up by its address alone.
  uint32_t InternLiteral(const char* literal);

  // Known codes and stack nodes; reset (and counted) when full.
  InternTable<4096>& codes() { return codes_; }
  InternTable<32768>& nodes() { return nodes_; }
  // Whole stacks by their hash, which is not 0; null if it is not known.
  VRAMSCOPE_ALWAYS_INLINE KnownStack* FindStack(uint64_t hash) { return stacks_.Find(hash); }
  KnownStack* KeepStack(uint64_t hash, uint32_t id, uintptr_t module);
  NativeStackCache& known_walks() { return known_walks_; }
  uint32_t NewId() { return ++last_id_; }
  // Whether hardly any event of that kind, which is not 0, was seen in this stream before. Bounded:
  // in a program that never repeats itself it says no after some thousands.
  VRAMSCOPE_ALWAYS_INLINE bool IsEarlySight(uint64_t kind) {
    // A full table is not searched: what it does not have takes longest to look for.
    if (sights_are_full_)
      return false;
    Sight* const sight = sights_.Find(kind);
    return VRAMSCOPE_UNLIKELY(sight == nullptr || sight->count < kEarlySights) &&
           CountSight(kind, sight);
  }
  // Forgets every known code and stack. Ids keep counting, so what was written stays valid.
  void ResetStackTables();

  // The scope of the records from here on, as the stream has stored it (ScopeStack::path()).
  uint64_t scope_path() const { return scope_path_; }
  // Continues after an append that will never be finished.
  void Recover();
  // Seals what is committed: the thread ends, or the process.
  void Seal();
  // In a forked child, where it is the parent's: what is still written to it goes nowhere.
  void LeaveToParent();
  // Changes with every record.
  uint64_t progress() const {
    return uint64_t{sequence_} << 32 |
           (header_ != nullptr ? header_->committed_bytes.load(std::memory_order_relaxed) : 0);
  }

  // The recording that it writes to (SessionFlags::session).
  uint32_t session() const { return session_; }
  // Writes that they are in the thread's scope now, which is not that one.
  VRAMSCOPE_NOINLINE void EnterScope();

  // Images (mapped binaries) that this stream has described, by SeenBinaries().
  uint64_t images_generation = ~uint64_t{0};
  // Events since AllocatorTotals was written last, by device.
  uint32_t totals_countdown[16] = {};
  // The allocator's reserved bytes at that time.
  uint64_t totals_reserved[16] = {};

 private:
  friend class StreamPool;
  VRAMSCOPE_ALWAYS_INLINE void Commit() {
    header_->committed_bytes.store(static_cast<uint32_t>(cursor_ - begin_),
                                   std::memory_order_release);
  }
  // Called when the next check is due: seals what is written, and makes space for `need_bytes`.
  VRAMSCOPE_NOINLINE bool NextSpan(size_t need_bytes);
  bool NextChunk(size_t need_bytes);
  void BeginSpan(size_t need_bytes);
  // Maps room for the next chunks in place of the space that is used up.
  bool NextSpace(size_t chunk_bytes);
  void DropSpace();
  void BeginChunk(uint8_t* memory, size_t size_bytes);
  // The last seal: nothing is appended to the chunk any more.
  void SealChunk();
  // Makes it a new stream of the recording under way.
  void Renew();
  // Ticks become nanoseconds between pairs of both clocks: the pairs must be close to the events,
  // also to the first one after a long pause.
  VRAMSCOPE_NOINLINE void AppendAnchor();
  static constexpr uint32_t kEarlySights = 3;
  struct Sight {
    uint64_t kind;
    uint32_t count;
  };
  VRAMSCOPE_NOINLINE bool CountSight(uint64_t kind, Sight* sight);
  uint32_t DefineScopes(const ScopeStack& scopes);

  uint8_t* end_ = nullptr;  // the chunk's
  // The mapped part of the file that chunks are cut from, one after the other: up to end_.
  uint8_t* space_ = nullptr;
  uint8_t* space_end_ = nullptr;
  uint32_t space_bytes_ = 0;  // as it was claimed
  uint32_t scope_ = 0;        // the id of scope_path_; readers forget it at the end of a chunk
  uint32_t id_ = 0;
  uint32_t sequence_ = 0;
  uint32_t tid_ = 0;
  uint32_t last_id_ = 0;
  uint32_t retry_in_ = 0;  // events until room is looked for again; 0 while there is room
  alignas(64) OrderedTable<KnownStack, &KnownStack::hash, 32768> stacks_;
  InternTable<4096> strings_;
  InternTable<4096> scopes_;  // ids by path
  InternTable<4096> codes_;
  OrderedTable<Sight, &Sight::kind, 4096> sights_;
  InternTable<32768> nodes_;
  NativeStackCache known_walks_;
};

// The state of a thread: trivially destructible, valid before main and after every destructor.
struct ThreadState {
  Stream* stream;
  uint64_t scope;  // ScopeStack::path(), 0 outside of all scopes
  ScopeStack* scopes;
  uintptr_t
      busy;  // while this thread is inside the recorder: the frame that went in; or kSuppressed
  uint64_t interrupted_at;  // Stream::progress() when an event came inside of another
  uint32_t interruptions;   // how many there were with that
  uint32_t nested;          // events under way inside of another
};
inline constexpr uintptr_t kSuppressed = 1;  // the recorder's own: no event of the program
extern constinit VRAMSCOPE_TLS ThreadState t_thread;

enum class Want {
  kTensor,  // not while paused
  kAlways,  // driver events and the session's own
};

// Entry to the recorder. Takes the thread's stream for the scope's life, unless nothing is
// recorded:
//
//   RecordScope scope(Want::kTensor);
//   if (scope) scope->Append(...);
//
// If the thread is already inside, a signal handler has interrupted it, and this event goes to
// another stream. Or what was inside will never come out: a handler left by longjmp, or the thread
// was cancelled. Then its frame is gone, and this one takes its place.
class RecordScope {
 public:
  VRAMSCOPE_ALWAYS_INLINE explicit RecordScope(Want want) {
    if (VRAMSCOPE_UNLIKELY(State() != SessionState::kOn) && (SessionIsOff() || !Begin(want)))
      return;
    if (want == Want::kTensor && g_flags.paused.load(std::memory_order_relaxed))
      return;
    const auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    if (VRAMSCOPE_UNLIKELY(t_thread.busy != 0)) {
      const Entry entry = EnterAgain(frame);
      if (!entry.takes_own) {
        stream_ = entry.borrowed;
        is_nested_ = true;
        return;
      }
    }
    t_thread.busy = frame;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    Stream* stream = t_thread.stream;
    if (VRAMSCOPE_UNLIKELY(stream == nullptr ||
                           stream->session() != g_flags.session.load(std::memory_order_relaxed))) {
      stream = Acquire();
      if (stream == nullptr) {
        t_thread.busy = 0;
        return;
      }
    }
    if (VRAMSCOPE_UNLIKELY(stream->scope_path() != t_thread.scope))
      stream->EnterScope();
    stream_ = stream;
  }
  VRAMSCOPE_ALWAYS_INLINE ~RecordScope() {
    if (stream_ == nullptr)
      return;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (VRAMSCOPE_UNLIKELY(is_nested_))
      LeaveNested(stream_);
    else
      t_thread.busy = 0;
  }
  RecordScope(const RecordScope&) = delete;
  RecordScope& operator=(const RecordScope&) = delete;

  explicit operator bool() const { return stream_ != nullptr; }
  Stream* operator->() const { return stream_; }
  Stream& operator*() const { return *stream_; }

 private:
  VRAMSCOPE_NOINLINE static Stream* Acquire();
  VRAMSCOPE_NOINLINE static bool Begin(Want want);
  // Whether the thread's own stream can be taken; otherwise this is a nested event, or none (null).
  struct Entry {
    bool takes_own;
    Stream* borrowed;
  };
  VRAMSCOPE_NOINLINE static Entry EnterAgain(uintptr_t frame);
  VRAMSCOPE_NOINLINE static void LeaveNested(Stream* stream);

  Stream* stream_ = nullptr;
  bool is_nested_ = false;
};

}  // namespace vramscope::probe
