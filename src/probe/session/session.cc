// SPDX-License-Identifier: Apache-2.0
#include "probe/session/session.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "base/raw_file.h"
#include "format/layout.h"
#include "probe/session/stream.h"
#include "probe/sink/live_file.h"

namespace vramscope::probe {

constinit WipedOnFork g_wiped;
constinit SessionFlags g_flags;

namespace {

constinit Config g_config;

// A thread may still write to the file of a recording that was ended, so the next one has another.
// Two or three take turns: an unused one is reused. Their memory stays, since a late thread may
// look at `users` at any time.
struct SessionFile {
  LiveFile live;
  uint32_t session = 0;
  std::atomic<uint32_t> users{0};
  SessionFile* next = nullptr;
};
constinit SessionFile g_first_file;  // the list's head
constinit std::atomic<SessionFile*> g_file{&g_first_file};

// The file of the recording under way, which is not taken for another one meanwhile. If a signal
// handler leaves by longjmp, the file stays in use: the next recording makes one more.
class FileUse {
 public:
  FileUse() {
    for (;;) {
      file_ = g_file.load();
      file_->users.fetch_add(1);
      if (file_ == g_file.load())
        return;
      file_->users.fetch_sub(1);  // a recording has begun in between
    }
  }
  ~FileUse() { file_->users.fetch_sub(1); }
  FileUse(const FileUse&) = delete;
  FileUse& operator=(const FileUse&) = delete;

  SessionFile* operator->() const { return file_; }
  format::FileHeader* header() const { return file_->live.header(); }

 private:
  SessionFile* file_;
};
constinit std::atomic<uint32_t> g_next_stream{0};
constinit std::atomic<int64_t> g_paused_bytes{0};
constinit std::atomic<uint64_t> g_ring_bytes{0};
constinit std::atomic<uint64_t> g_early_losses{0};  // before there is a file to count them in
constinit std::atomic<int64_t> g_next_try_ns{0};
constinit std::atomic<bool> g_loaded{false};
constinit bool g_configured = false;
constinit bool g_is_forked = false;
constinit pid_t g_pid = 0;                  // whose session this is
constinit char g_mark[kMaxPathBytes] = {};  // what MarkUnrecorded() made, or ""
constinit bool g_told_launcher = false;     // that this process is not recorded

// A process that cannot make its file now tries again this often.
constexpr int64_t kTryEveryNs = 100'000'000;
// How long a thread waits for another one that is making the file: 0.1 ms mostly, some 10 ms where
// many programs start at once on a busy disk. Bounded, since this is the program's time.
constexpr int64_t kMaxWaitNs = 500'000'000;
constexpr int64_t kMaxReportNs = 1'000'000'000;
constexpr timespec kReportStep = {.tv_sec = 0, .tv_nsec = 1'000'000};
constexpr int kTurnsBeforeSleep = 100;
constexpr timespec kSleep = {.tv_sec = 0, .tv_nsec = 50'000};

// The longest name of a file of ours in the directory: two numbers of 64 bits and an ending.
constexpr size_t kMaxNameBytes = 48;

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

void ReadCommand(format::FileHeader* header) {
  const int fd = base::OpenFile("/proc/self/cmdline", O_RDONLY);
  if (fd >= 0) {
    const ssize_t got = base::ReadFile(fd, header->command, sizeof header->command - 1);
    if (got <= 0)
      header->command[0] = '\0';
    base::CloseFile(fd);
  }
  const ssize_t length =
      readlink("/proc/self/exe", header->executable, sizeof header->executable - 1);
  header->executable[length > 0 ? length : 0] = '\0';
}

// Losses before the file existed, or while it was made. The thread that counts a loss and the
// thread that makes the file both check afterwards, so the later of the two finds it.
void WriteEarlyLosses() {
  if (const uint64_t count = g_early_losses.exchange(0))
    CountLoss(format::Loss::kFileFull, count);
}

void CountEarlyLoss() {
  g_early_losses.fetch_add(1);
  if (g_wiped.state.load() == SessionState::kOn)
    WriteEarlyLosses();
}

void SetState(SessionState state) {
  g_wiped.state.store(state);
  if (state == SessionState::kOn)
    WriteEarlyLosses();
}

// DIRECTORY/PID.NANOSECONDS and an ending.
void NameFile(const char* ending, char* path) {
  const size_t length = std::strlen(g_config.directory);
  std::memcpy(path, g_config.directory, length);
  char* out = path + length;
  *out++ = '/';
  out = AppendNumber(out, static_cast<uint64_t>(g_pid));
  *out++ = '.';
  out = AppendNumber(out, static_cast<uint64_t>(base::MonotonicNs()));
  std::memcpy(out, ending, std::strlen(ending) + 1);
}

// The path of a file of the directory that does not belong to a process.
template <size_t kNameBytes>
void NameCommonFile(const char (&name)[kNameBytes], char* path) {
  const size_t length = std::strlen(g_config.directory);
  std::memcpy(path, g_config.directory, length);
  path[length] = '/';
  std::memcpy(path + length + 1, name, kNameBytes);
}

// DIRECTORY/ID.session.
void NameSession(char* path) {
  const size_t length = std::strlen(g_config.directory);
  const size_t id_length = std::strlen(g_config.session);
  std::memcpy(path, g_config.directory, length);
  path[length] = '/';
  std::memcpy(path + length + 1, g_config.session, id_length);
  std::memcpy(path + length + 1 + id_length, format::kSessionExtension,
              sizeof format::kSessionExtension);
}

// Another recording can have taken the directory's name, while this process lived on without an
// event.
bool DirectoryIsOurs() {
  char path[kMaxPathBytes + kMaxSessionBytes];
  if (g_config.session[0] == '\0')
    return true;
  NameSession(path);
  return access(path, F_OK) == 0;
}

// For a recording without a launcher: gives the directory an id.
void ClaimDirectory() {
  char* out = AppendNumber(g_config.session, static_cast<uint64_t>(g_pid));
  *out++ = '.';
  *AppendNumber(out, static_cast<uint64_t>(base::MonotonicNs())) = '\0';
  char path[kMaxPathBytes + kMaxSessionBytes];
  NameSession(path);
  const int fd = base::OpenFile(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (fd >= 0)
    base::CloseFile(fd);
  else
    g_config.session[0] = '\0';
}

// Losses of a process without a file go to the launcher's file, if there is one. False if there is
// none.
bool TellLauncher(format::Loss loss, uint64_t count) {
  char path[kMaxPathBytes];
  NameCommonFile(format::kLauncherFile, path);
  return DirectoryIsOurs() && CountLossOfAnother(path, loss, count);
}

void TellEarlyLosses() {
  const uint64_t count = g_early_losses.exchange(0);
  if (count != 0 && !TellLauncher(format::Loss::kFileFull, count))
    g_early_losses.fetch_add(count);
}

// Says in the directory that this process could not be recorded, and why. As a symbolic link to the
// error's number: that takes no descriptor and no space, so it can be where no file can. It takes
// an inode; where there are none left, the launcher's file counts the process.
void MarkUnrecorded(int error) {
  if (!DirectoryIsOurs())
    return;
  if (g_mark[0] == '\0' && !g_told_launcher) {
    char reason[32];
    *AppendNumber(reason, static_cast<uint64_t>(error)) = '\0';
    NameFile(format::kUnrecordedExtension, g_mark);
    if (symlink(reason, g_mark) != 0) {
      g_mark[0] = '\0';
      g_told_launcher = TellLauncher(format::Loss::kNotRecorded, 1);
    }
  }
  TellEarlyLosses();
}

void Unmark() {
  if (g_mark[0] != '\0')
    unlink(g_mark);
  g_mark[0] = '\0';
  if (g_told_launcher)
    TellLauncher(format::Loss::kNotRecorded, ~uint64_t{0});  // one less
  g_told_launcher = false;
}

// Whether there may be a file later.
bool MayPass(int error) {
  switch (error) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return true;
    default:
      return false;
  }
}

int BeginFile(LiveFile& file) {
  if (!DirectoryIsOurs())
    return ENOENT;  // as where it is gone
  char path[kMaxPathBytes];
  NameFile(".vrl", path);
  if (const int error = file.Create(path); error != 0)
    return error;

  format::FileHeader* header = file.header();
  header->major = format::kMajorVersion;
  header->minor = format::kMinorVersion;
  header->writer = static_cast<uint16_t>(format::WriterKind::kProbe);
  header->header_bytes = format::kPageBytes;
  const bool has_outer = g_config.outer_pid != 0;  // then its parent's is unknown
  header->pid = has_outer ? g_config.outer_pid : static_cast<uint32_t>(g_pid);
  header->parent_pid = has_outer ? 0 : static_cast<uint32_t>(getppid());
  const base::ClockPair clocks = base::ReadClocks(g_flags.use_tsc);
  header->start_ticks = clocks.ticks;
  header->start_ns = clocks.ns;
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  header->start_wall_ns = static_cast<int64_t>(wall.tv_sec) * 1'000'000'000 + wall.tv_nsec;
  const uint32_t flags =
      (g_flags.use_tsc ? format::kTicksAreTsc : 0u) | (g_is_forked ? format::kForked : 0u);
  header->flags.store(format::CheckedFlags(flags), std::memory_order_relaxed);
  ReadCommand(header);
  header->crc32c = format::HeaderChecksum(reinterpret_cast<const uint8_t*>(header));
  // Last: a file without the whole of it is one whose header was not finished.
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(header->magic, format::kFileMagic, sizeof header->magic);
  char name[kMaxNameBytes];
  std::memcpy(name, path + std::strlen(g_config.directory) + 1, sizeof name);
  NameCommonFile(format::kManifestFile, path);
  AddToManifest(path, name);
  Unmark();
  return 0;
}

SessionState AwaitStart() {
  const int64_t give_up_ns = base::MonotonicNs() + kMaxWaitNs;
  for (int turn = 0;; ++turn) {
    const SessionState state = State(std::memory_order_acquire);
    if (state != SessionState::kStarting || base::MonotonicNs() > give_up_ns)
      return state;
    if (turn < kTurnsBeforeSleep)
      sched_yield();
    else
      syscall(SYS_nanosleep, &kSleep, nullptr);  // the C library's may cancel the thread
  }
}

void ApplyConfig() {
  g_flags.cpu = g_config.cpu;
  g_flags.python = g_config.python;
  g_flags.native = g_config.native;
  g_flags.unpooled = g_config.unpooled;
  g_flags.overflow_bytes = g_config.overflow_bytes;
  g_ring_bytes.store(g_config.ring_bytes, std::memory_order_relaxed);
  g_flags.paused.store(g_config.paused, std::memory_order_relaxed);
  g_flags.was_paused.store(g_config.paused, std::memory_order_relaxed);
}

// In a forked child: the file is the parent's. The child makes its own at its first event, and
// keeps the scopes that it was forked in.
void ForgetParent() {
  SystemCalls guard;
  if (State() != SessionState::kUnread && getpid() == g_pid)
    return;  // an event in an earlier fork handler has shown the fork
  g_pid = getpid();
  g_is_forked = true;
  g_config.outer_pid = 0;  // the parent's
  // If a signal handler forked, the event that it interrupted will still be finished.
  if (t_thread.busy > kSuppressed && t_thread.stream != nullptr)
    t_thread.stream->LeaveToParent();
  t_thread.stream = nullptr;
  t_thread.busy = 0;
  t_thread.nested = 0;
  StreamPool::ForgetAll();
  g_file.load(std::memory_order_relaxed)->live.Forget();
  g_mark[0] = '\0';
  g_told_launcher = false;
  g_early_losses.store(0, std::memory_order_relaxed);
  g_next_try_ns.store(0, std::memory_order_relaxed);
  g_next_stream.store(0, std::memory_order_relaxed);
  SetState(g_configured ? SessionState::kIdle : SessionState::kOff);
}

// A file for the next recording; nullptr when memory is exhausted. Only one thread begins one.
SessionFile* NextFile() {
  SessionFile* const current = g_file.load();
  if (current->live.header() == nullptr)
    return current;
  for (SessionFile* file = &g_first_file; file != nullptr; file = file->next) {
    // A new user sees that it is not the current one, and leaves it unchanged.
    if (file != current && file->users.load() == 0) {
      file->live.Close();
      return file;
    }
  }
  void* const memory = mmap(nullptr, sizeof(SessionFile), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return nullptr;
  // Zeroed pages are a valid SessionFile.
  auto* const file = static_cast<SessionFile*>(memory);
  file->next = g_first_file.next;
  g_first_file.next = file;
  return file;
}

// Begins another recording's file. 0 or an errno.
int RenewFile(uint32_t session) {
  SessionFile* const file = NextFile();
  if (file == nullptr)
    return ENOMEM;
  if (const int error = BeginFile(file->live); error != 0)
    return error;
  file->session = session;
  g_file.store(file);
  return 0;
}

}  // namespace

void SessionLoad() {
  if (g_loaded.load(std::memory_order_relaxed) || g_loaded.exchange(true))
    return;
  SystemCalls guard;
  g_pid = getpid();
  constexpr int kMadvWipeOnFork = 18;  // from Linux 4.14 on
  madvise(&g_wiped, sizeof g_wiped, kMadvWipeOnFork);
  g_flags.use_tsc = base::HasInvariantTsc();
  pthread_atfork(nullptr, nullptr, ForgetParent);
  StreamPool::Load();
  ScopesLoad();
  g_configured = ReadConfig(getenv("VRAMSCOPE_DIR"), getenv("VRAMSCOPE_OPTIONS"), &g_config);
  if (g_configured)
    ApplyConfig();
  SetState(g_configured ? SessionState::kIdle : SessionState::kOff);
}

bool SessionEnsureStarted() {
  SystemCalls guard;
  SessionState state = State(std::memory_order_acquire);
  if (state == SessionState::kUnread) {
    // Another library's constructor ran before ours, or this is a fork whose handlers did not run.
    if (g_loaded.load(std::memory_order_relaxed))
      ForgetParent();
    else
      SessionLoad();
    state = State(std::memory_order_acquire);
  }
  if (state == SessionState::kIdle) {
    if (base::MonotonicNs() < g_next_try_ns.load(std::memory_order_relaxed)) {
      CountEarlyLoss();
      return false;
    }
    // A child of vfork shares its parent's memory and has another number: the file would have the
    // wrong name. Once there is one, what the child does in that memory is recorded in it like the
    // rest.
    if (getpid() != g_pid)
      return false;
    if (g_wiped.state.compare_exchange_strong(state, SessionState::kStarting,
                                              std::memory_order_acq_rel)) {
      const int error = BeginFile(g_file.load(std::memory_order_relaxed)->live);
      if (error != 0) {
        CountEarlyLoss();
        MarkUnrecorded(error);
        g_next_try_ns.store(base::MonotonicNs() + kTryEveryNs, std::memory_order_relaxed);
      }
      SetState(error == 0       ? SessionState::kOn
               : MayPass(error) ? SessionState::kIdle
                                : SessionState::kOff);
      return error == 0;
    }
  }
  if (AwaitStart() == SessionState::kOn)
    return true;
  CountEarlyLoss();
  return false;
}

int SessionAttach(const char* live_dir, const char* options) {
  SystemCalls guard;
  SessionState expected = SessionState::kOff;
  Config config;
  if (!ReadConfig(live_dir, options, &config))
    return EINVAL;
  if (!g_wiped.state.compare_exchange_strong(expected, SessionState::kStarting))
    return EBUSY;
  if (mkdir(live_dir, 0700) != 0 && errno != EEXIST) {
    const int error = errno;
    SetState(SessionState::kOff);
    return error;
  }
  g_config = config;
  if (g_config.session[0] == '\0')
    ClaimDirectory();
  ApplyConfig();
  // Tensors from before may be freed: their size is said then.
  g_flags.was_paused.store(true, std::memory_order_relaxed);
  g_flags.late.store(true, std::memory_order_relaxed);
  g_paused_bytes.store(0, std::memory_order_relaxed);
  const uint32_t session = g_flags.session.fetch_add(1, std::memory_order_relaxed) + 1;
  g_next_stream.store(0, std::memory_order_relaxed);
  const int error = RenewFile(session);
  g_configured = error == 0;
  SetState(error == 0 ? SessionState::kOn : SessionState::kOff);
  return error;
}

void SessionDetach() {
  SessionAtExit();
  SessionMarkClosed();
  SessionState expected = SessionState::kOn;
  if (g_wiped.state.compare_exchange_strong(expected, SessionState::kOff,
                                            std::memory_order_acq_rel)) {
    g_configured = false;
  }
}

const char* SessionDirectory() {
  return SessionIsOff() ? "" : g_config.directory;
}

bool SessionIsOurs() {
  return State(std::memory_order_acquire) == SessionState::kOn && getpid() == g_pid;
}

void SessionMarkClosed() {
  if (!SessionIsOurs())
    return;
  const FileUse file;
  if (file.header() == nullptr)
    return;
  auto& flags = file.header()->flags;
  flags.store(format::CheckedFlags(flags.load(std::memory_order_relaxed) | format::kClosedCleanly),
              std::memory_order_relaxed);
}

void SessionAtExit() {
  if (SessionIsOurs()) {
    if (t_thread.stream != nullptr && t_thread.busy == 0)
      t_thread.stream->Seal();
  } else if (g_configured && getpid() == g_pid) {
    SystemCalls guard;
    TellEarlyLosses();
  }
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
  if (State(std::memory_order_acquire) != SessionState::kOn)
    return;
  const FileUse file;
  format::FileHeader* const header = file.header();
  const auto index = static_cast<uint32_t>(loss);
  if (header == nullptr || index >= format::kLossSlots)
    return;
  header->lost[index].fetch_add(count, std::memory_order_relaxed);
  header->lost_again[index].fetch_add(count, std::memory_order_release);
}

void CountRefusal(Refusal refusal) {
  if (State(std::memory_order_acquire) != SessionState::kOn)
    return;
  const FileUse file;
  format::FileHeader* const header = file.header();
  if (header == nullptr)
    return;
  (refusal == Refusal::kByDriver ? header->refused : header->gave_up)
      .fetch_add(1, std::memory_order_release);
}

void AwaitReport() {
  if (!g_config.await_report || State(std::memory_order_acquire) != SessionState::kOn)
    return;
  const FileUse file;
  if (file.header() == nullptr)
    return;
  std::atomic<uint32_t>& report = file.header()->report;
  uint32_t expected = format::kNotAwaited;
  if (!report.compare_exchange_strong(expected, format::kAwaited, std::memory_order_acq_rel))
    return;
  const int saved = errno;
  const int64_t give_up_ns = base::MonotonicNs() + kMaxReportNs;
  while (report.load(std::memory_order_acquire) == format::kAwaited &&
         base::MonotonicNs() < give_up_ns) {
    syscall(SYS_nanosleep, &kReportStep, nullptr);
  }
  report.store(format::kReported, std::memory_order_release);
  errno = saved;
}

uint8_t* MapSpace(uint32_t session, uint32_t size_bytes) {
  const FileUse file;
  return file->session == session ? file->live.MapSpace(size_bytes) : nullptr;
}

void UnmapSpace(uint8_t* space, size_t size_bytes) {
  munmap(space, size_bytes);
}

bool PrepareChunk(uint32_t session, uint8_t* chunk, size_t size_bytes) {
  if (const FileUse file; file->session != session)
    return false;
  LiveFile::PreparePages(chunk, size_bytes);
  return true;
}

void CountChunk(uint32_t session) {
  const FileUse file;
  if (file->session == session && file.header() != nullptr)
    file.header()->chunk_count.fetch_add(1, std::memory_order_relaxed);
}

uint32_t NewStreamId() {
  return g_next_stream.fetch_add(1, std::memory_order_relaxed) + 1;
}

// All threads of a ring together are to leave room for history.
uint32_t MostSpaceBytes() {
  constexpr uint64_t kMostSpaceBytes = 4 << 20;
  constexpr uint64_t kThreads = 64;
  const uint64_t of_ring = g_ring_bytes.load(std::memory_order_relaxed) / kThreads;
  return static_cast<uint32_t>(of_ring == 0 || of_ring > kMostSpaceBytes ? kMostSpaceBytes
                                                                         : of_ring);
}

}  // namespace vramscope::probe
