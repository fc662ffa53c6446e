// SPDX-License-Identifier: Apache-2.0
#include "record/attach/detour.h"

#include <fmt/core.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "util/file.h"

#if defined(__x86_64__)

namespace vramscope::cli {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint64_t kRedZone = 128;
constexpr uint64_t kStackBytes = 65536;  // more than the code and what it calls need
constexpr size_t kScannedWords = 32;     // of the stack, for the callers of a function of a lock
constexpr size_t kScannedCallers = 512;  // of the stack, for allocators
constexpr int kTries = 200;
constexpr int kTriesAtOnePace = 10;  // together 2 s
constexpr milliseconds kStopLimit{2000};

bool IsIn(uint64_t value, uint64_t begin, uint64_t end) {
  return value >= begin && value < end;
}

// The thread that traces. The kernel detaches from the target when it ends, however it does.
class Tracer {
 public:
  explicit Tracer(pid_t pid) : pid_(pid) {}

  util::Status Seize() {
    if (ptrace(PTRACE_SEIZE, pid_, nullptr, nullptr) == 0)
      return {};
    return util::Status::Error(errno == EPERM
                                   ? WhyNotPermitted(pid_)
                                   : fmt::format("process {}: {}", pid_, util::ErrnoText(errno)));
  }

  // Stops the thread between two instructions. Signals that arrive meanwhile go to the program.
  util::Status Stop() {
    if (ptrace(PTRACE_INTERRUPT, pid_, nullptr, nullptr) != 0)
      return Ended();
    const auto deadline = std::chrono::steady_clock::now() + kStopLimit;
    for (;;) {
      int status = 0;
      const pid_t got = waitpid(pid_, &status, __WALL | WNOHANG);
      if (got < 0 || (got == pid_ && !WIFSTOPPED(status)))
        return Ended();
      if (got == pid_ && status >> 16 == PTRACE_EVENT_STOP) {
        if (WSTOPSIG(status) == SIGTRAP)
          return {};
        return util::Status::Error(
            fmt::format("process {} is stopped: continue it with `kill -CONT {}`", pid_, pid_));
      }
      if (got == pid_) {
        (void)ptrace(PTRACE_CONT, pid_, nullptr, WSTOPSIG(status));
      } else if (std::chrono::steady_clock::now() > deadline) {
        return util::Status::Error(fmt::format(
            "process {} does not stop: it waits in the kernel, for a disk or a device; try again",
            pid_));
      } else {
        std::this_thread::sleep_for(microseconds(20));
      }
    }
  }

  // Where the process has ended, the next Stop() says so.
  void Continue() { (void)ptrace(PTRACE_CONT, pid_, nullptr, nullptr); }
  void Detach() { (void)ptrace(PTRACE_DETACH, pid_, nullptr, nullptr); }

  bool Registers(user_regs_struct* registers) const {
    return ptrace(PTRACE_GETREGS, pid_, nullptr, registers) == 0;
  }
  bool SetRegisters(const user_regs_struct& registers) const {
    return ptrace(PTRACE_SETREGS, pid_, nullptr, &registers) == 0;
  }
  bool Write(uint64_t address, const std::string& bytes) const {
    for (size_t at = 0; at + sizeof(long) <= bytes.size(); at += sizeof(long)) {
      long word = 0;
      std::memcpy(&word, bytes.data() + at, sizeof word);
      if (ptrace(PTRACE_POKEDATA, pid_, address + at, word) != 0)
        return false;
    }
    return true;
  }
  // Whether the thread is in a restartable sequence of rseq(2), which a detour would break.
  bool IsInRestartableSequence(uint64_t instruction) const {
    struct {
      uint64_t area;
      uint32_t size, signature, flags, pad;
    } configuration{};
    constexpr auto kGetConfiguration = static_cast<__ptrace_request>(0x420f);
    if (ptrace(kGetConfiguration, pid_, sizeof configuration, &configuration) <= 0 ||
        configuration.area == 0)
      return false;
    struct {
      uint32_t version, flags;
      uint64_t start, length, abort;
    } sequence{};
    constexpr uint64_t kPointerOffset = 8;  // struct rseq: rseq_cs
    uint64_t pointer = 0;
    return ReadRemote(pid_, configuration.area + kPointerOffset, &pointer) && pointer != 0 &&
           ReadRemote(pid_, pointer, &sequence) && instruction - sequence.start < sequence.length;
  }

 private:
  util::Status Ended() const {
    return util::Status::Error(fmt::format("process {} has ended", pid_));
  }

  const pid_t pid_;
};

// Calls that return EINTR after a stop although no signal handler ran, and that have had no effect
// then (signal(7)).
constexpr uint64_t kEpollPwait2 = 441;
constexpr uint64_t kNoEffectCalls[] = {SYS_epoll_wait,      SYS_epoll_pwait,  SYS_semop,
                                       SYS_semtimedop,      SYS_io_getevents, SYS_read,
                                       SYS_rt_sigtimedwait, SYS_recvfrom,     SYS_recvmsg,
                                       SYS_accept,          SYS_accept4,      kEpollPwait2};

// Calls that neither an allocator nor the loader waits in while it holds a lock.
constexpr uint64_t kIdleCalls[] = {
    SYS_clock_nanosleep, SYS_nanosleep,  SYS_poll,          SYS_ppoll,          SYS_select,
    SYS_pselect6,        SYS_epoll_wait, SYS_epoll_pwait,   kEpollPwait2,       SYS_read,
    SYS_recvfrom,        SYS_recvmsg,    SYS_accept,        SYS_accept4,        SYS_wait4,
    SYS_waitid,          SYS_pause,      SYS_rt_sigsuspend, SYS_rt_sigtimedwait};

template <size_t kCount>
bool IsAmong(const uint64_t (&calls)[kCount], uint64_t call) {
  return std::find(std::begin(calls), std::end(calls), call) != std::end(calls);
}

// Signals of a mask in /proc/PID/status.
uint64_t SignalSet(std::string_view status, const char* key) {
  return strtoull(StatusValue(status, key).c_str(), nullptr, 16);
}

bool HasPendingSignal(pid_t pid) {
  const std::string status = util::ReadProc(pid, "status").value_or("");
  return ((SignalSet(status, "SigPnd") | SignalSet(status, "ShdPnd")) &
          ~SignalSet(status, "SigBlk")) != 0;
}

// Whether the main thread may be in a signal handler, which can have interrupted anything.
bool MayHandleSignal(pid_t pid) {
  const std::string status = util::ReadProc(pid, "status").value_or("");
  return (SignalSet(status, "SigBlk") & SignalSet(status, "SigCgt")) != 0;
}

// Whether the call has a time-out relative to its begin. It would end later if it began again.
bool HasDeadline(const user_regs_struct& registers) {
  constexpr int kShortMs = 1000;
  switch (registers.orig_rax) {
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
      return static_cast<int>(registers.r10) > kShortMs;
    case kEpollPwait2:
    case SYS_semtimedop:
      return registers.r10 != 0;
    case SYS_io_getevents:
      return registers.r8 != 0;
    case SYS_rt_sigtimedwait:
      return registers.rdx != 0;
    default:
      return false;
  }
}

// Has the thread continue as the kernel would let it: a system call that the stop interrupted is
// restarted, but for those that would end later. Whether there is one.
bool RestartSystemCall(pid_t pid, user_regs_struct* registers) {
  constexpr int64_t kRestartSys = -512, kRestartNoIntr = -513, kRestartNoHand = -514,
                    kRestartBlock = -516;
  constexpr uint64_t kInstructionBytes = 2;
  const auto call = static_cast<int64_t>(registers->orig_rax);
  const auto result = static_cast<int64_t>(registers->rax);
  if (call < 0)
    return false;
  const bool had_no_effect =
      result == -EINTR && IsAmong(kNoEffectCalls, registers->orig_rax) && !HasPendingSignal(pid);
  const bool restarts = result == kRestartSys || result == kRestartNoIntr ||
                        result == kRestartNoHand || (had_no_effect && !HasDeadline(*registers));
  registers->orig_rax = ~uint64_t{0};  // the kernel has nothing left to restart
  if (!restarts && result != kRestartBlock)
    return had_no_effect;
  registers->rax = restarts ? static_cast<uint64_t>(call) : uint64_t{SYS_restart_syscall};
  registers->rip -= kInstructionBytes;
  return true;
}

// Words of the stack and the instruction: where the thread is, and some of its callers.
std::vector<uint64_t> PlacesOf(pid_t pid, const user_regs_struct& registers, size_t count) {
  std::vector<uint64_t> words(count);
  while (!words.empty() &&
         !ReadRemote(pid, registers.rsp, words.data(), words.size() * sizeof words[0]))
    words.resize(words.size() / 2);
  words.push_back(registers.rip);
  return words;
}

bool IsInAny(uint64_t address, const std::vector<RemoteObject::Range>& ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const RemoteObject::Range& range) {
    return IsIn(address, range.begin, range.end);
  });
}

// Whether the running thread may hold the lock of the pending calls, for which the code would wait.
// The holder calls only functions of a lock.
bool MayHoldLock(pid_t pid, const RemoteProgram& program, const user_regs_struct& registers) {
  const std::vector<uint64_t> places = PlacesOf(pid, registers, kScannedWords);
  return std::any_of(places.begin(), places.end(), [&](uint64_t address) {
    const auto is_in = [&](RemoteFunction function) {
      const RemoteObject::Symbol& symbol = program[function];
      return IsIn(address, symbol.address, symbol.address + symbol.size_bytes);
    };
    return is_in(RemoteFunction::kAddPendingCall) || is_in(RemoteFunction::kMakePendingCalls);
  });
}

// Whether the running thread may be in an allocator or the loader, or be called by an allocator.
// What the loader calls, such as constructors, may create threads.
bool MayAllocate(pid_t pid, const RemoteProgram& program, const user_regs_struct& registers) {
  const std::vector<uint64_t> places = PlacesOf(pid, registers, kScannedCallers);
  return IsInAny(registers.rip, program.c_library) ||
         std::any_of(places.begin(), places.end(),
                     [&](uint64_t address) { return IsInAny(address, program.allocators); });
}

// Whether the thread is on the main thread's own stack, with room for the code and what it calls.
// Coroutines and signal handlers can have a small one elsewhere.
bool HasStack(pid_t pid, const RemoteProgram& program, uint64_t pointer) {
  // The stack may have grown since it was looked at. The space right below it is free.
  const auto stack = std::find_if(program.mappings.begin(), program.mappings.end(),
                                  [&](const Mapping& mapping) { return pointer < mapping.end; });
  rlimit limit{};
  return stack != program.mappings.end() && stack->file == "[stack]" &&
         prlimit(pid, RLIMIT_STACK, nullptr, &limit) == 0 &&
         stack->end - pointer + kStackBytes < limit.rlim_cur;
}

// The main thread between two instructions.
struct Moment {
  user_regs_struct registers{};  // as it is to continue
  bool waits = false;            // a system call is interrupted
  bool is_idle = false;          // one of IsIdleCall()
};

std::optional<Moment> MomentOf(pid_t pid, const Tracer& tracer) {
  Moment moment;
  if (!tracer.Registers(&moment.registers))
    return {};
  const bool is_idle = IsIdleCall(moment.registers.orig_rax, moment.registers.rsi);
  moment.waits = RestartSystemCall(pid, &moment.registers);
  moment.is_idle = moment.waits && is_idle && !MayHandleSignal(pid);
  return moment;
}

// How the task can be done now.
RemoteTask::Way WayAt(const Moment& moment, const RemoteProgram& program, RemoteTask::Way wanted) {
  const bool falls_back =
      wanted == RemoteTask::Way::kThread && (!moment.is_idle || !program.HasThreads());
  return falls_back ? RemoteTask::Way::kSafePoint : wanted;
}

// Why the thread cannot make the call now; none if it can.
std::optional<std::string> WhyNotNow(pid_t pid,
                                     const Tracer& tracer,
                                     const RemoteProgram& program,
                                     const Moment& moment,
                                     RemoteTask::Way way) {
  if (tracer.IsInRestartableSequence(moment.registers.rip))
    return "it is in a restartable sequence";
  if (!HasStack(pid, program, moment.registers.rsp))
    return "it is not on its main stack, or that is nearly full";
  if (way == RemoteTask::Way::kSafePoint && !moment.waits &&
      MayHoldLock(pid, program, moment.registers))
    return "it handles pending calls";
  if (way == RemoteTask::Way::kLibrary && !moment.is_idle &&
      (moment.waits || MayHandleSignal(pid) || MayAllocate(pid, program, moment.registers)))
    return "it allocates memory, loads a library or handles a signal";
  return {};
}

// Executable bytes for the code.
struct Place {
  uint64_t begin = 0;
  uint64_t sequence = 0;  // of the code that is to come
  std::string bytes;      // that are there

  bool IsAsSeen(pid_t pid) const {
    std::string now(bytes.size(), '\0');
    return ReadRemote(pid, begin, now.data(), now.size()) && now == bytes;
  }
};

// A call that has been given up can still use the code of an earlier one, so several places take
// turns.
util::Result<Place> ChoosePlace(pid_t pid, const RemoteProgram& program, size_t size_bytes) {
  constexpr uint64_t kAlign = 16;
  constexpr size_t kPlaces = 4;
  std::vector<Place> used;
  std::optional<Place> empty;
  for (const RemoteObject::Range& unused : program.unused) {
    const uint64_t begin = (unused.begin + kAlign - 1) & ~(kAlign - 1);
    std::string there(begin < unused.end ? unused.end - begin : 0, '\0');
    if (there.size() < size_bytes || !ReadRemote(pid, begin, there.data(), there.size()))
      continue;
    if (const uint64_t sequence = SequenceOf(there); sequence != 0)
      used.push_back({begin, sequence, std::move(there)});
    else if (!empty && IsUnfinished(there))
      empty = Place{begin, 0, std::move(there)};
  }
  std::sort(used.begin(), used.end(),
            [](const Place& a, const Place& b) { return a.sequence < b.sequence; });
  std::optional<Place> place = empty;
  if (!used.empty() && (!empty || used.size() >= kPlaces))
    place = used.front();
  if (!place) {
    return util::Status::Error(
        fmt::format("process {}: no room for the call: start it with `vramscope run`", pid));
  }
  place->sequence = used.empty() ? 1 : used.back().sequence + 1;
  return *place;
}

// `registers`: where the thread is to continue afterwards.
util::Status Enter(pid_t pid,
                   const Tracer& tracer,
                   const std::string& code,
                   uint64_t place,
                   user_regs_struct registers) {
  const uint64_t stack = registers.rsp - kRedZone - sizeof(uint64_t);
  const std::string back(reinterpret_cast<const char*>(&registers.rip), sizeof registers.rip);
  registers.rsp = stack;
  registers.rip = place;
  // Bytes that nothing uses, then all registers in one system call.
  if (!tracer.Write(place, code) || !tracer.Write(stack, back) || !tracer.SetRegisters(registers))
    return util::Status::Error(fmt::format("process {}: {}", pid, util::ErrnoText(errno)));
  return {};
}

util::Status Trace(pid_t pid, const RemoteProgram& program, RemoteTask task) {
  const RemoteTask::Way wanted = task.way;
  Tracer tracer(pid);
  VRAMSCOPE_RETURN_IF_ERROR(tracer.Seize());
  VRAMSCOPE_ASSIGN_OR_RETURN(const Place place, ChoosePlace(pid, program, CodeSize(task)));
  std::string why;
  for (int i = 0; i < kTries; ++i) {
    VRAMSCOPE_RETURN_IF_ERROR(tracer.Stop());
    if (!place.IsAsSeen(pid))
      return util::Status::Error(fmt::format("process {} unloads libraries: try again", pid));
    const std::optional<Moment> moment = MomentOf(pid, tracer);
    if (!moment)
      return util::Status::Error(fmt::format("process {} has ended", pid));
    task.way = WayAt(*moment, program, wanted);
    const std::optional<std::string> busy = WhyNotNow(pid, tracer, program, *moment, task.way);
    if (!busy) {
      const std::string code = CodeFor(task, program, place.begin, place.sequence);
      const util::Status status = Enter(pid, tracer, code, place.begin, moment->registers);
      tracer.Detach();
      return status;
    }
    why = *busy;
    (void)tracer.SetRegisters(moment->registers);
    tracer.Continue();
    std::this_thread::sleep_for(milliseconds(1 + i / kTriesAtOnePace));
  }
  return util::Status::Error(fmt::format("process {}: {}: try again", pid, why));
}

}  // namespace

bool IsIdleCall(uint64_t number, uint64_t second) {
  // What the C library's own low-level locks wait with is FUTEX_WAIT. Semaphores, conditions and
  // joins wait with this one.
  if (number == SYS_futex)
    return (second & static_cast<uint64_t>(FUTEX_CMD_MASK)) == FUTEX_WAIT_BITSET;
  return IsAmong(kIdleCalls, number);
}

util::Status Detour(pid_t pid, const RemoteProgram& program, const RemoteTask& task) {
  util::Status status;
  // The kernel detaches from the target when the thread that traces it ends.
  std::thread([&] { status = Trace(pid, program, task); }).join();
  return status;
}

}  // namespace vramscope::cli

#else

namespace vramscope::cli {

bool IsIdleCall(uint64_t, uint64_t) {
  return false;
}

util::Status Detour(pid_t, const RemoteProgram&, const RemoteTask&) {
  return {};
}

}  // namespace vramscope::cli

#endif
