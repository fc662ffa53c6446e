// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/compiler.h"
#include "format/enums.h"

// The variables that configure the probe, as `vramscope env` prints them:
//
//   VRAMSCOPE_DIR      absolute path of the live directory; without it nothing is recorded
//   VRAMSCOPE_OPTIONS  comma list of
//                        cpu         record CPU tensors too
//                        no-python   no Python stacks
//                        native      native stacks on tensor events as well as on driver calls
//                        paused      tensor events begin with vramscope_start()
//                        await-report
//                                    a lack of memory that a framework raises waits for the
//                                    launcher to report it (AwaitReport())
//                        overflow    host memory where device memory is refused; overflow=BYTES:
//                                    so much of it at most
//                        session=ID  the recording that the directory must be of (layout.h)
//                        ring=BYTES  the recording is to stay below that size: threads take less
//                                    space at once
//                        pid=N       this process's number for the launcher, which is in another
//                                    PID namespace
//                        unpooled    noted in the trace: the frameworks' caches were switched off
namespace vramscope::probe {

inline constexpr size_t kMaxPathBytes = 4096;
inline constexpr size_t kMaxSessionBytes = 64;

struct Config {
  char directory[kMaxPathBytes] = {};
  char session[kMaxSessionBytes] = {};  // "": whatever is there
  bool cpu = false;
  bool python = true;
  bool native = false;
  bool paused = false;
  bool unpooled = false;
  bool await_report = false;
  uint64_t overflow_bytes = 0;  // UINT64_MAX: without a bound of its own
  uint64_t ring_bytes = 0;      // 0: there is no ring
  uint32_t outer_pid = 0;       // 0: getpid()
};

// Reads both variables. False if no directory is set.
bool ReadConfig(const char* directory, const char* options, Config* config);

// How much of the file a busy thread takes at once at most, by what the session is configured to.
uint32_t MostSpaceBytes();

// The recording of this process: off until the first event, then one live file, until the process
// ends. A program that loads the probe itself (the Python package) can end a recording and begin
// another one, in a file of its own. All functions are safe in any thread and in a forked child;
// none throws, aborts or prints.

class Stream;

enum class SessionState : int {
  kUnread = 0,  // the environment has not been read; what the child of a bare fork finds, too
  kIdle,        // nothing recorded yet; the first event begins the file
  kStarting,    // one thread is making the file
  kOn,
  kOff,  // no directory given, the file could not be made, or the recording was ended
};

// The state has a page to itself, which the kernel zeroes in every forked child. A child may be
// made without the C library's fork() (by a system call, by _Fork), or may come here in a fork
// handler before ours. The page shows that it is a child before it writes into its parent's file.
#ifdef __x86_64__
inline constexpr size_t kWipedBytes = 4096;
#else
inline constexpr size_t kWipedBytes = 65536;
#endif
struct alignas(kWipedBytes) WipedOnFork {
  std::atomic<SessionState> state;
};
extern WipedOnFork g_wiped;

inline SessionState State(std::memory_order order = std::memory_order_relaxed) {
  return g_wiped.state.load(order);
}
inline bool SessionIsOff() {
  return State() == SessionState::kOff;
}

// Read on every event, written rarely: kept together on one cache line.
struct alignas(64) SessionFlags {
  std::atomic<bool> paused{false};      // tensor events are not wanted now
  std::atomic<bool> was_paused{false};  // ever: frees may be of blocks that were never seen
  std::atomic<bool> late{false};        // the process was under way when it began
  std::atomic<uint32_t> session{0};     // which recording of the process: streams belong to one
  bool use_tsc = false;
  std::atomic<bool> cpu{false};       // record CPU tensors
  std::atomic<bool> python{false};    // record Python stacks
  std::atomic<bool> native{false};    // record native stacks on tensor events
  std::atomic<bool> unpooled{false};  // the launcher switched the frameworks' caches off: noted
  // Host memory that may replace device memory, as `run --overflow` sets it; 0: none.
  std::atomic<uint64_t> overflow_bytes{0};
};
extern SessionFlags g_flags;

inline uint64_t Now() {
  return base::Ticks(g_flags.use_tsc);
}

// Reads the configuration, touches nothing else. By the probe's constructor, or before it where
// the constructor of a library that depends on nothing of ours is first to do something.
void SessionLoad();
// Whether CPU tensors are recorded.
inline bool WantsCpuTensors() {
  if (g_flags.cpu.load(std::memory_order_relaxed))
    return true;
  if (__builtin_expect(State() == SessionState::kUnread, 0))
    SessionLoad();
  return g_flags.cpu.load(std::memory_order_relaxed);
}
// Begins the file if that has not happened. False when this process does not record, or not now.
bool SessionEnsureStarted();
// Begins recording into `live_dir` in a process that was not started by the launcher, or whose last
// recording was ended. 0, or an errno. Not while another thread does the same.
int SessionAttach(const char* live_dir, const char* options);
// Ends it: what threads are just writing still goes to its file, and nothing after that.
void SessionDetach();
// Directory of the live files, "" when not recording.
const char* SessionDirectory();
// Whether there is a file, and it is this process's: a child of vfork shares its parent's memory.
bool SessionIsOurs();
// Flags the file as closed cleanly; recording continues (late frees are still written).
void SessionMarkClosed();
// The process ends, as far as the probe sees: seals what this thread has written.
void SessionAtExit();

// Pauses or resumes tensor events; driver events are always recorded, the ledger needs them.
void SessionSetPaused(bool paused);
// Bytes of CPU tensors allocated (freed: negative) while paused.
void SessionCountPausedBytes(int64_t bytes);

// Counts a loss in the file's header, for what cannot be written as a record. Never blocks.
void CountLoss(format::Loss loss, uint64_t count = 1);
// The same of requests for memory that the driver refused, or that an allocator gave up.
enum class Refusal { kByDriver, kGivenUp };
void CountRefusal(Refusal refusal);
// Waits for the launcher's report, the first time in a process and for one second at most. So the
// report is printed before the traceback of a program that ends now, and before the program
// continues. Only where the launcher asked for that. Not within a RecordScope.
void AwaitReport();

// Maps `size_bytes` of new space of that session's file, zeroed and allocated on disk. nullptr if
// the file cannot grow now: the caller counts the loss. A few system calls and no lock; the offset
// is claimed by one atomic add.
uint8_t* MapSpace(uint32_t session, uint32_t size_bytes);
void UnmapSpace(uint8_t* space, size_t size_bytes);
// Before a chunk is begun in that space. False when that recording is over.
bool PrepareChunk(uint32_t session, uint8_t* chunk, size_t size_bytes);
// After its header is whole: a reader that finds fewer chunks has a file that was cut.
void CountChunk(uint32_t session);
uint32_t NewStreamId();

// ---- whether the driver gave memory between two instants, for callers that need only that

inline constinit std::atomic<bool> g_counts_driver_memory{false};
inline constinit std::atomic<uint32_t> g_driver_memory_count{0};

// Only a load while this is not watched.
inline void CountDriverMemory() {
  if (__builtin_expect(g_counts_driver_memory.load(std::memory_order_relaxed), 0))
    g_driver_memory_count.fetch_add(1, std::memory_order_relaxed);
}

// The end of the program's own life, when its teardown begins: frees after that moment are not the
// program's doing. The first of: Python's finalisation, exit(), the return from main.

// Called once, with the GIL, when Python begins to end and all still works; null: nothing is.
// Whether no exception of the program's is set afterwards.
extern std::atomic<bool (*)()> g_before_python_exit;

void NoteTeardown(format::TeardownKind kind);
// Whether that has happened.
bool TeardownBegan();

// Registers with Python's atexit. The calling thread holds the GIL and has no exception set.
void WatchPythonFinalisation();

}  // namespace vramscope::probe
