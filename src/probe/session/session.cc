// SPDX-License-Identifier: Apache-2.0
#include "probe/session/session.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "probe/session/stream.h"
#include "probe/session/stream_pool.h"
#include "probe/sink/live_file.h"

namespace vramscope::probe {

constinit SessionFlags g_flags;

namespace {

constinit Config g_config;

// A thread may still write to the file of a recording that was ended, so each has its own.
struct SessionFile {
  LiveFile live;
  uint32_t session = 0;
};
constinit SessionFile g_first_file;
constinit std::atomic<SessionFile*> g_file{&g_first_file};
constinit std::atomic<uint32_t> g_next_stream{0};
constinit std::atomic<int64_t> g_paused_bytes{0};
constinit std::atomic<uint64_t> g_early_losses{0};  // before there is a file to count them in
constinit bool g_fork_handler = false;

char* AppendNumber(char* out, uint64_t value) {
  char digits[24];
  size_t n = 0;
  do
    digits[n++] = static_cast<char>('0' + value % 10);
  while ((value /= 10) != 0);
  while (n != 0)
    *out++ = digits[--n];
  return out;
}

// errno belongs to the program: whatever we do inside its calls must leave it alone.
class ErrnoGuard {
 public:
  ErrnoGuard() : saved_(errno) {}
  ~ErrnoGuard() { errno = saved_; }

 private:
  int saved_;
};

void ReadCommand(format::FileHeader* header) {
  const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    const ssize_t got = read(fd, header->command, sizeof header->command - 1);
    if (got <= 0)
      header->command[0] = '\0';
    close(fd);
  }
  const ssize_t length =
      readlink("/proc/self/exe", header->executable, sizeof header->executable - 1);
  header->executable[length > 0 ? length : 0] = '\0';
}

int BeginFile() {
  char path[kMaxPathBytes];
  const size_t length = std::strlen(g_config.directory);
  std::memcpy(path, g_config.directory, length);
  char* out = path + length;
  *out++ = '/';
  out = AppendNumber(out, static_cast<uint64_t>(getpid()));
  *out++ = '.';
  out = AppendNumber(out, static_cast<uint64_t>(base::MonotonicNs()));
  std::memcpy(out, ".vrl", 5);
  LiveFile& file = g_file.load(std::memory_order_relaxed)->live;
  if (const int error = file.Create(path); error != 0)
    return error;

  format::FileHeader* header = file.header();
  header->major = format::kMajorVersion;
  header->minor = format::kMinorVersion;
  header->writer = static_cast<uint16_t>(format::WriterKind::kProbe);
  header->header_bytes = format::kPageBytes;
  header->pid = static_cast<uint32_t>(getpid());
  header->parent_pid = static_cast<uint32_t>(getppid());
  header->start_ticks = Now();
  header->start_ns = base::MonotonicNs();
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  header->start_wall_ns = static_cast<int64_t>(wall.tv_sec) * 1'000'000'000 + wall.tv_nsec;
  header->flags.store(g_flags.use_tsc ? format::kTicksAreTsc : 0u, std::memory_order_relaxed);
  ReadCommand(header);
  // Last: a file without its magic is one whose header was not finished.
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(header->magic, format::kFileMagic, sizeof header->magic);
  return 0;
}

void ApplyConfig() {
  g_flags.cpu = g_config.cpu;
  g_flags.python = g_config.python;
  g_flags.native = g_config.native;
  g_flags.unpooled = g_config.unpooled;
  g_flags.paused.store(g_config.paused, std::memory_order_relaxed);
  g_flags.was_paused.store(g_config.paused, std::memory_order_relaxed);
}

void ForkedChild() {
  SessionForgetParent();
}

// Puts an empty file in place of an ended recording's. False when there is no memory.
bool RenewFile() {
  const uint32_t session = g_flags.session.load(std::memory_order_relaxed);
  if (g_first_file.live.header() == nullptr) {
    g_first_file.session = session;
    g_file.store(&g_first_file, std::memory_order_release);
    return true;
  }
  void* const memory = mmap(nullptr, sizeof(SessionFile), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return false;
  // Zeroed pages are a valid SessionFile.
  auto* const file = static_cast<SessionFile*>(memory);
  file->session = session;
  g_file.store(file, std::memory_order_release);
  return true;
}

}  // namespace

void SessionLoad() {
  ErrnoGuard guard;
  g_flags.use_tsc = base::HasInvariantTsc();
  if (!g_fork_handler) {
    g_fork_handler = true;
    pthread_atfork(nullptr, nullptr, ForkedChild);
  }
  StreamPool::Load();
  ScopesLoad();
  if (!ReadConfig(getenv("VRAMSCOPE_DIR"), getenv("VRAMSCOPE_OPTIONS"), &g_config)) {
    g_flags.state.store(SessionState::kOff, std::memory_order_relaxed);
    return;
  }
  ApplyConfig();
}

bool SessionEnsureStarted() {
  ErrnoGuard guard;
  SessionState state = g_flags.state.load(std::memory_order_acquire);
  if (state == SessionState::kIdle &&
      g_flags.state.compare_exchange_strong(state, SessionState::kStarting,
                                            std::memory_order_acq_rel)) {
    const bool ok = BeginFile() == 0;
    g_flags.state.store(ok ? SessionState::kOn : SessionState::kOff, std::memory_order_release);
    return ok;
  }
  // Another thread is making the file, which takes about 0.1 ms. Bounded: this is the program's
  // time.
  for (int turn = 0; turn < 1000; ++turn) {
    state = g_flags.state.load(std::memory_order_acquire);
    if (state != SessionState::kStarting)
      return state == SessionState::kOn;
    sched_yield();
  }
  g_early_losses.fetch_add(1, std::memory_order_relaxed);
  return false;
}

int SessionAttach(const char* live_dir, const char* options) {
  ErrnoGuard guard;
  SessionState expected = SessionState::kOff;
  Config config;
  if (!ReadConfig(live_dir, options, &config))
    return EINVAL;
  if (!g_flags.state.compare_exchange_strong(expected, SessionState::kStarting))
    return EBUSY;
  if (mkdir(live_dir, 0700) != 0 && errno != EEXIST) {
    const int error = errno;
    g_flags.state.store(SessionState::kOff);
    return error;
  }
  g_config = config;
  ApplyConfig();
  // Tensors from before may be freed: their size is said then.
  g_flags.was_paused.store(true, std::memory_order_relaxed);
  g_flags.late.store(true, std::memory_order_relaxed);
  g_paused_bytes.store(0, std::memory_order_relaxed);
  g_flags.session.fetch_add(1, std::memory_order_relaxed);
  g_next_stream.store(0, std::memory_order_relaxed);
  const int error = RenewFile() ? BeginFile() : ENOMEM;
  g_flags.state.store(error == 0 ? SessionState::kOn : SessionState::kOff,
                      std::memory_order_release);
  return error;
}

void SessionDetach() {
  SessionMarkClosed();
  SessionState expected = SessionState::kOn;
  g_flags.state.compare_exchange_strong(expected, SessionState::kOff, std::memory_order_acq_rel);
}

const char* SessionDirectory() {
  return g_flags.state.load(std::memory_order_relaxed) != SessionState::kOff ? g_config.directory
                                                                             : "";
}

void SessionForgetParent() {
  // The child goes on in the scopes that it was forked in.
  t_thread.stream = nullptr;
  t_thread.busy = 0;
  StreamPool::ForgetAll();
  g_file.load(std::memory_order_relaxed)->live.Forget();
  g_next_stream.store(0, std::memory_order_relaxed);
  const SessionState state = g_flags.state.load(std::memory_order_relaxed);
  if (state != SessionState::kOff)
    g_flags.state.store(SessionState::kIdle, std::memory_order_relaxed);
}

void SessionMarkClosed() {
  if (g_flags.state.load(std::memory_order_acquire) != SessionState::kOn)
    return;
  g_file.load(std::memory_order_relaxed)
      ->live.header()
      ->flags.fetch_or(format::kClosedCleanly, std::memory_order_relaxed);
}

void SessionSetPaused(bool paused) {
  if (g_flags.paused.load(std::memory_order_relaxed) == paused)
    return;
  if (paused)
    g_flags.was_paused.store(true, std::memory_order_relaxed);
  RecordScope scope(Want::kAlways);
  g_flags.paused.store(paused, std::memory_order_relaxed);
  if (!scope)
    return;
  const auto state = paused ? format::RecordingState::kPaused : format::RecordingState::kRecording;
  scope->Append(format::State{.time = Now(),
                              .state = static_cast<uint64_t>(state),
                              .cpu_live = g_paused_bytes.load(std::memory_order_relaxed)});
}

void SessionCountPausedBytes(int64_t bytes) {
  g_paused_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void CountLoss(format::Loss loss, uint64_t count) {
  if (g_flags.state.load(std::memory_order_acquire) != SessionState::kOn)
    return;
  auto& slots = g_file.load(std::memory_order_relaxed)->live.header()->lost;
  const auto index = static_cast<uint32_t>(loss);
  if (index < sizeof slots / sizeof slots[0])
    slots[index].fetch_add(count, std::memory_order_relaxed);
}

uint8_t* MapNewChunk(uint32_t session, uint32_t size_bytes) {
  ErrnoGuard guard;
  SessionFile* const file = g_file.load(std::memory_order_acquire);
  if (file->session != session)
    return nullptr;
  uint8_t* chunk = file->live.MapChunk(size_bytes);
  if (chunk != nullptr) {
    // A later pair of clocks than the header's start, for converting ticks after a SIGKILL.
    format::FileHeader* header = file->live.header();
    header->anchor_ticks.store(Now(), std::memory_order_relaxed);
    header->anchor_ns.store(base::MonotonicNs(), std::memory_order_release);
  }
  return chunk;
}

void UnmapChunk(uint8_t* chunk, uint32_t size_bytes) {
  ErrnoGuard guard;
  munmap(chunk, size_bytes);
}

uint32_t NewStreamId() {
  return g_next_stream.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace vramscope::probe
