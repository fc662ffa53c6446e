// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/compiler.h"
#include "format/enums.h"
#include "probe/session/config.h"

// The recording of this process: off until the first event, then one live file, until the process
// ends. All functions are safe in any thread and in a forked child; none throws, aborts or prints.
namespace vramscope::probe {

class Stream;

enum class SessionState : int {
  kIdle = 0,      // nothing recorded yet; the first event begins the file
  kStarting = 1,  // one thread is making the file
  kOn = 2,
  kOff = 3,  // for good: no directory given, or the file could not be made
};

// Read on every event, written rarely: kept together on one cache line.
struct alignas(64) SessionFlags {
  std::atomic<SessionState> state{SessionState::kIdle};
  std::atomic<bool> paused{false};      // tensor events are not wanted now
  std::atomic<bool> was_paused{false};  // ever: frees may be of blocks that were never seen
  bool use_tsc = false;
  bool cpu = false;       // record CPU tensors
  bool python = false;    // record Python stacks
  bool native = false;    // record native stacks on tensor events
  bool unpooled = false;  // the launcher switched the frameworks' caches off: noted in the trace
};
extern SessionFlags g_flags;

inline uint64_t Now() {
  return base::Ticks(g_flags.use_tsc);
}

// Called once when the library is loaded: reads the configuration, touches nothing else.
void SessionLoad();
// Begins the file if that has not happened. False when this process does not record.
bool SessionEnsureStarted();
// Begins recording into `live_dir` in a process that was not started by the launcher. 0, or an
// errno.
int SessionAttach(const char* live_dir, const char* options);
// Directory of the live files, "" when not recording.
const char* SessionDirectory();
// After fork, in the child: forget the parent's file. The child makes its own at its first event.
void SessionForgetParent();
// Flags the file as closed cleanly; recording goes on (late frees are still written).
void SessionMarkClosed();

// Pauses or resumes tensor events; driver events are always recorded, the ledger needs them.
void SessionSetPaused(bool paused);
// Bytes of CPU tensors allocated (freed: negative) while paused.
void SessionCountPausedBytes(int64_t bytes);

// Counts a loss in the file's header, for what cannot be written as a record. Never blocks.
void CountLoss(format::Loss loss, uint64_t count = 1);

// Maps `size_bytes` of new file space, zeroed and allocated on disk. nullptr when the file is full:
// the loss is counted by the caller. Two system calls and no lock; the offset is claimed by one
// atomic add.
uint8_t* MapNewChunk(uint32_t size_bytes);
void UnmapChunk(uint8_t* chunk, uint32_t size_bytes);
uint32_t NewStreamId();

}  // namespace vramscope::probe
